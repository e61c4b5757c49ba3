//! One item is one row.

use std::sync::Arc;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Stock(u32),
    Quote(u32),
    /// Place in `quote_history`.
    Day(u64),
    Account(u32),
    /// Account and stock.
    Holding(u32, u32),
}

impl Key {
    /// Rows that never change once seeded.
    pub fn is_immutable(self) -> bool {
        matches!(self, Self::Stock(_) | Self::Day(_))
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "table", rename_all = "snake_case")]
pub enum Row {
    Stock {
        symbol: Arc<str>,
        name: Arc<str>,
        sector: u32,
        shares: i64,
    },
    Quote {
        price_cents: i64,
        change_cents: i64,
        updates: i64,
    },
    Day {
        open_cents: i64,
        close_cents: i64,
        volume: i64,
    },
    Account {
        account: u32,
        cash_cents: i64,
    },
    Holding {
        stock: u32,
        shares: i64,
    },
}
