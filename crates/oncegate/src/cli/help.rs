//! `oncegate --help`: verbs by what they are for, one line each.

use clap::Command;

/// What comes first is what is typed most.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Run once", &["claim", "done", "error", "heartbeat"]),
    ("Look", &["list", "show", "sources", "notices", "automations", "audit", "nodes"]),
    (
        "Act",
        &[
            "reset",
            "run-now",
            "mark-error",
            "mark-done",
            "dismiss",
            "approve",
            "decline",
            "tag",
            "release",
            "bulk",
            "pause",
            "resume",
        ],
    ),
    ("Who may call, and whose it is", &["token", "workspace", "person", "forget"]),
    ("Keep a gate", &["serve", "check", "key", "doctor", "backup", "restore", "recovery", "upgrade", "move"]),
    ("Begin", &["demo", "completions"]),
];

/// The same command with its verbs in groups. A verb that no group names is not lost.
pub(super) fn grouped(command: Command) -> Command {
    let mut page = String::new();
    let mut left: Vec<&str> =
        command.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name).collect();
    let mut group = |title: &str, names: &[&str]| {
        page.push_str(&format!("{title}:\n"));
        for verb in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            page.push_str(&format!("  {:<12} {about}\n", verb.get_name()));
        }
        page.push('\n');
    };
    for (title, names) in GROUPS {
        group(title, names);
        left.retain(|name| !names.contains(name));
    }
    if !left.is_empty() {
        group("Others", &left);
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{page}Options:\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}
