/// A rule with one guard taken out.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The line of DESIGN §3's table, or the paragraph, that the guard stands for.
    pub line: &'static str,
    /// What it does wrong.
    pub name: &'static str,
    /// The file of the core that is changed.
    pub file: &'static str,
    /// Where the search must notice.
    pub scope: &'static str,
    /// The promise that must be seen broken.
    pub breaks: &'static str,
    /// The text that is changed; it must stand there once.
    pub find: &'static str,
    /// What it is changed to.
    pub put: &'static str,
}
