//! The reference of a configuration file.

/// A key's row in the reference: name, values with unit and range, default, meaning.
pub type KeyReference = (&'static str, &'static str, &'static str, &'static str);

/// A table in the reference: its header, what it is about, and its keys.
pub type TableReference = (&'static str, &'static str, &'static [KeyReference]);

/// Of `[http.tokens]`.
pub const TOKENS_REFERENCE: TableReference = (
    "[http.tokens]",
    "What callers must show as `Authorization: Bearer …`, by role: [http-api.md](http-api.md#roles). Files have 16 to 4096 printable ASCII characters, are read at start and reload, and no two roles have the same token. With any token, here or in `http.token_file`, all that needs `observe` or `write` needs a token of that role or a higher one.",
    &[
        (
            "read_file",
            "path",
            "none",
            "File with the token of the role `read`. Without it reading needs no token.",
        ),
        (
            "observe_file",
            "path",
            "none",
            "File with the token of the role `observe`, for proxies.",
        ),
        (
            "write_file",
            "path",
            "none",
            "File with the token of the role `write`, for operators and for those who query partitions.",
        ),
    ],
);

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
