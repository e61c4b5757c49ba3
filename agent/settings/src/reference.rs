//! The reference of a configuration file.

/// A key's row in the reference: name, values with unit and range, default, meaning.
pub type KeyReference = (&'static str, &'static str, &'static str, &'static str);

/// A table in the reference: its header, what it is about, and its keys.
pub type TableReference = (&'static str, &'static str, &'static [KeyReference]);

/// The tables in Markdown, each under a heading of its own.
pub fn markdown(tables: &[TableReference]) -> String {
    let mut text = String::new();
    for (table, about, rows) in tables {
        text.push_str(&format!(
            "\n## `{table}`\n\n{about}\n\n| key | values | default | meaning |\n|---|---|---|---|\n"
        ));
        for (key, values, default, meaning) in *rows {
            text.push_str(&format!("| `{key}` | {values} | {default} | {meaning} |\n"));
        }
    }
    text
}
