//! The rates as bars: an SVG that reads on light and dark ground, drawn by hand because it is forty lines.

use std::fmt::Write;

use crate::rows::{Results, Row, rate};

const WIDTH: f64 = 760.0;
const LABELS: f64 = 290.0;
const VALUES: f64 = 80.0;
const LINE: f64 = 30.0;
const TOP: f64 = 58.0;

const STYLE: &str = "\
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.quiet { fill: #59636e; font-size: 12px }
.ground { fill: #ffffff }
.ours { fill: #0a7d55 }
.theirs { fill: #9aa4af }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .quiet { fill: #9198a1 } .ground { fill: #0d1117 }
  .ours { fill: #3fb98a } .theirs { fill: #57606a }
}";

/// The chart; `how` stands below its title.
pub(crate) fn svg(results: &Results, existing: u64, how: &str) -> String {
    let bars: Vec<(Row, f64)> =
        Row::ALL.into_iter().filter_map(|row| Some((row, results.median(row, rate)?))).collect();
    let most = bars.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
    let height = TOP + LINE * bars.len() as f64 + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"oncegate beside its ceilings, per second\">\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n\
         <text class=\"title\" x=\"16\" y=\"24\">Per second: oncegate (coloured) beside its ceilings (grey)</text>\n\
         <text class=\"quiet\" x=\"16\" y=\"43\">{}</text>\n",
        escaped(how)
    );
    for (n, (row, rate)) in bars.iter().enumerate() {
        let y = TOP + LINE * n as f64;
        let width = (WIDTH - LABELS - VALUES) * rate / most;
        let class = if row.is_ceiling() { "theirs" } else { "ours" };
        let what = escaped(&row.what(existing));
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{what}</text>\
             <rect class=\"{class}\" x=\"{LABELS}\" y=\"{}\" width=\"{width:.1}\" height=\"18\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            LABELS - 10.0,
            y + 18.0,
            y + 4.0,
            LABELS + width + 8.0,
            y + 18.0,
            thousands(*rate)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn thousands(rate: f64) -> String {
    let whole = rate.round() as u64;
    match whole {
        0..1_000 => whole.to_string(),
        _ => format!("{},{:03}", whole / 1_000, whole % 1_000),
    }
}
