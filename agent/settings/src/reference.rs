//! The reference of a configuration file, from the types that read it.

use schemars::{JsonSchema, SchemaGenerator};
use serde::{
    Deserializer,
    de::{DeserializeOwned, Error, Visitor, value},
    forward_to_deserialize_any,
};
use serde_json::Value;

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
    /// Subject of the table.
    pub about: String,
    /// Its keys, in the order of the fields.
    pub keys: Vec<KeyReference>,
}

/// The table that `S` reads. Its title is the header, its doc comment what the table is about. A field's doc comment
/// is the meaning of its key; its extensions `x-values` and `x-default` are the rest. Skipped fields are tables of
/// their own. A text that is missing is empty.
pub fn table<S: JsonSchema + DeserializeOwned>() -> TableReference {
    let schema = SchemaGenerator::default().into_root_schema_for::<S>();
    let schema = schema.as_value();
    let fields = schema.get("properties").and_then(Value::as_object);
    let mut fields: Vec<_> = fields.into_iter().flatten().collect();
    let order = field_names::<S>();
    fields.sort_by_key(|(key, _)| order.iter().position(|name| name == key));
    TableReference {
        header: text(schema, "title"),
        about: text(schema, "description"),
        keys: fields
            .into_iter()
            .map(|(key, field)| key_reference(key, field))
            .collect(),
    }
}

fn key_reference(key: &str, field: &Value) -> KeyReference {
    KeyReference {
        key: key.to_owned(),
        values: text(field, "x-values"),
        default: text(field, "x-default"),
        meaning: text(field, "description"),
    }
}

/// Names of the fields in their order, which a schema has only with a feature that changes the order of all JSON. None
/// of a type with flattened fields.
fn field_names<S: DeserializeOwned>() -> &'static [&'static str] {
    struct Names<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Names<'_> {
        type Error = value::Error;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, value::Error> {
            *self.0 = fields;
            Err(value::Error::custom("there is no value"))
        }

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
            Err(value::Error::custom("there is no value"))
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut names: &[&str] = &[];
    // It fails once it has said which fields it wants.
    let _ = S::deserialize(Names(&mut names));
    names
}

fn text(of: &Value, what: &str) -> String {
    let found = of.get(what).and_then(Value::as_str).unwrap_or_default();
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
