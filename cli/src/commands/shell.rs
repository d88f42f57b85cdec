//! Completion scripts for shells, and the manual page; both generated from clap's commands.

use std::io::Write;

use crate::error::CliError;

/// Prints the completion script of `root` for `shell`.
///
/// # Errors
/// Output that cannot be written.
pub fn completions(
    mut root: clap::Command,
    shell: clap_complete::Shell,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    // Into memory: `clap_complete` panics on a writer that fails, such as a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root, "weft", &mut script);
    out.write_all(&script).map_err(CliError::Output)
}

/// Prints the manual page of `root`, each command in a section of its own.
///
/// # Errors
/// Output that cannot be written.
pub fn man(mut root: clap::Command, out: &mut dyn Write) -> Result<(), CliError> {
    // Gives subcommands their full names and the options of the commands above them.
    root.build();
    let mut page = Vec::new();
    let write = |command: &clap::Command, page: &mut Vec<u8>| {
        clap_mangen::Man::new(command.clone()).render(page)
    };
    let mut left = vec![root];
    while let Some(command) = left.pop() {
        write(&command, &mut page).map_err(CliError::Output)?;
        let mut subcommands: Vec<_> = command
            .get_subcommands()
            .filter(|c| !c.is_hide_set() && c.get_name() != "help")
            .cloned()
            .collect();
        // `left` is a stack: reversed, commands come in the order of the help.
        subcommands.reverse();
        left.append(&mut subcommands);
    }
    out.write_all(&page).map_err(CliError::Output)
}
