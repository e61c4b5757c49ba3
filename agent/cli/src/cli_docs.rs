//! Man page and shell completions, generated from the clap definition.

use std::io::{self, Write};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// Writes the completions for a shell.
pub fn completions(mut command: Command, shell: Shell, out: &mut dyn Write) {
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, out);
}

/// Writes a single roff page with the options of every command.
pub fn man(mut command: Command, out: &mut dyn Write) -> io::Result<()> {
    command.build();
    let page = Man::new(command.clone());
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    for subcommand in command.get_subcommands() {
        section(subcommand, out)?;
    }
    page.render_version_section(out)
}

/// Sub-commands become sections of the same page, and their headings sub-headings.
fn section(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    if command.get_name() == "help" {
        return Ok(());
    }
    let name = command
        .get_bin_name()
        .unwrap_or_else(|| command.get_name())
        .to_uppercase();
    writeln!(out, ".SH \"{name}\"")?;
    let page = Man::new(command.clone());
    let mut body = Vec::new();
    page.render_synopsis_section(&mut body)?;
    page.render_description_section(&mut body)?;
    let has_options = command.get_arguments().any(|a| !a.is_hide_set());
    if has_options {
        page.render_options_section(&mut body)?;
    }
    // Each rendering starts with a preamble, which belongs only at the top of the page.
    for line in String::from_utf8_lossy(&body).lines() {
        if line.starts_with(".ie ") || line.starts_with(".el ") {
            continue;
        }
        writeln!(
            out,
            "{}",
            line.strip_prefix(".SH ")
                .map_or(line.to_owned(), |title| format!(".SS {title}"))
        )?;
    }
    for subcommand in command.get_subcommands() {
        section(subcommand, out)?;
    }
    Ok(())
}
