//! Gathering: results under any interleaving, and refusals.
#![allow(clippy::unwrap_used, clippy::panic)]

mod merged;
mod outcomes;

use plimsoll_core::Seconds;
use plimsoll_scatter::answer::*;

fn plan(how: How) -> Plan {
    Plan {
        how,
        limit: None,
        partial: false,
        deadline: Seconds(10.0),
    }
}

fn key(column: &str, descending: bool, nulls_first: bool) -> OrderKey {
    OrderKey {
        column: column.into(),
        descending,
        nulls_first,
    }
}

fn reduction(function: Function, column: Option<&str>) -> Reduction {
    Reduction {
        function,
        column: column.map(str::to_owned),
    }
}

fn gathering<T>(partitions: usize, plan: Plan) -> Gathering<T> {
    Gathering::new((0..partitions).map(|at| format!("p{at}")), plan).unwrap()
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}
