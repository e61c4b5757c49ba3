//! The reference of a configuration file, from the types that read it.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// A key in the reference.
#[derive(Clone, Debug)]
pub struct KeyReference {
    /// Name.
    pub key: String,
    /// Values, with unit and range.
    pub values: String,
    /// Default, or `required`.
    pub default: String,
    /// Meaning.
    pub meaning: String,
}

/// A table in the reference.
#[derive(Clone, Debug)]
pub struct TableReference {
    /// Header, as in the file.
    pub header: String,
    /// What it is about.
    pub about: String,
    /// Its keys, in the order of the fields.
    pub keys: Vec<KeyReference>,
}

/// The table that `S` reads. Its title is the header, its doc comment what the table is about. A field's doc comment
/// is the meaning of its key; its extensions `x-values` and `x-default` are the rest. Skipped fields are tables of
/// their own.
///
/// # Panics
///
/// If a text is missing: the references are written by a test.
pub fn table<S: JsonSchema>() -> TableReference {
    let schema = SchemaGenerator::default().into_root_schema_for::<S>();
    let schema = schema.as_object().expect("a struct has a schema");
    let fields = schema.get("properties").and_then(Value::as_object);
    TableReference {
        header: text(schema, "title"),
        about: text(schema, "description"),
        keys: fields
            .into_iter()
            .flatten()
            .map(|(key, field)| {
                let field = field
                    .as_object()
                    .unwrap_or_else(|| panic!("{key}: no texts"));
                KeyReference {
                    key: key.clone(),
                    values: text(field, "x-values"),
                    default: text(field, "x-default"),
                    meaning: text(field, "description"),
                }
            })
            .collect(),
    }
}

fn text(of: &Map<String, Value>, what: &str) -> String {
    let found = of.get(what).and_then(Value::as_str);
    let found = found.unwrap_or_else(|| panic!("no {what} in {of:?}"));
    // A doc comment has line breaks where its source has them.
    found.replace('\n', " ")
}

/// The tables in Markdown, each under a heading of its own.
pub fn markdown(tables: &[TableReference]) -> String {
    let mut text = String::new();
    for TableReference {
        header,
        about,
        keys,
    } in tables
    {
        text.push_str(&format!(
            "\n## `{header}`\n\n{about}\n\n| key | values | default | meaning |\n|---|---|---|---|\n"
        ));
        for row in keys {
            text.push_str(&format!(
                "| `{}` | {} | {} | {} |\n",
                row.key, row.values, row.default, row.meaning
            ));
        }
    }
    text
}
