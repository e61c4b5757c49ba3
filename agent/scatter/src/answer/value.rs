//! Values of a row for ordering and reduction.

use std::cmp::Ordering;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};
use smallvec::SmallVec;

/// Value of a row, as in JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// Boolean.
    Bool(bool),
    /// Integer of 64 bits.
    Int(i64),
    /// Any other finite number.
    Float(f64),
    /// Text, ordered bytewise.
    Text(Box<str>),
}

/// Values of a row that the plan needs, usually one or two.
pub type Keys = SmallVec<[Value; 2]>;

/// Class of values that can be compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// False is less than true.
    Bool,
    /// Integer or float.
    Number,
    /// Ordered bytewise.
    Text,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Bool => "boolean",
            Kind::Number => "number",
            Kind::Text => "text",
        })
    }
}

impl Value {
    /// Kind of the value; `None` for null, which is compatible with all kinds.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Value::Null => None,
            Value::Bool(_) => Some(Kind::Bool),
            Value::Int(_) | Value::Float(_) => Some(Kind::Number),
            Value::Text(_) => Some(Kind::Text),
        }
    }

    /// Compares exactly, also integers with floats; equal if either is null or the kinds differ.
    pub fn compare(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
            (Value::Int(a), Value::Float(b)) => of_int_and_float(*a, *b),
            (Value::Float(a), Value::Int(b)) => of_int_and_float(*b, *a).reverse(),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

fn of_int_and_float(int: i64, float: f64) -> Ordering {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if float >= BEYOND {
        return Ordering::Less;
    }
    if float < -BEYOND {
        return Ordering::Greater;
    }
    let whole = float.trunc();
    let rest = || 0.0_f64.partial_cmp(&(float - whole));
    int.cmp(&(whole as i64))
        .then_with(|| rest().unwrap_or(Ordering::Equal))
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => out.serialize_unit(),
            Value::Bool(value) => out.serialize_bool(*value),
            Value::Int(value) => out.serialize_i64(*value),
            Value::Float(value) => out.serialize_f64(*value),
            Value::Text(value) => out.serialize_str(value),
        }
    }
}

struct One;

impl Visitor<'_> for One {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("null, a boolean, a number or a text")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        let int = i64::try_from(value);
        int.map(Value::Int)
            .map_err(|_| E::custom(format!("integer {value}, maximum {}", i64::MAX)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        match value.is_finite() {
            true => Ok(Value::Float(value)),
            false => Err(E::custom("a number must be finite")),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.into()))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(One)
    }
}
