//! Purchases and sales: what they change, and when they are refused.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Purchase,
    Sale,
}

impl Side {
    /// Name in the `orders` table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Purchase => "purchase",
            Self::Sale => "sale",
        }
    }
}

/// Maximum shares of one order.
const MAX_SHARES: i64 = 1_000_000;

/// Order of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub side: Side,
    pub account: u32,
    pub stock: u32,
    pub shares: i64,
}

/// The effects of one transaction: values, not operations, so that each slave gets the same rows
/// whatever its own quotes are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transaction {
    pub sequence: u64,
    pub side: Side,
    pub account: u32,
    pub stock: u32,
    pub shares: i64,
    pub price_cents: i64,
    pub cash_after: i64,
    /// 0 removes the holding.
    pub shares_after: i64,
}

/// Why a transaction was not made; nothing was changed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    UnknownAccount,
    NotEnoughCash { needed: i64, cash: i64 },
    NotEnoughShares { held: i64 },
}

impl Order {
    /// The order, or what is wrong with it.
    pub fn check(self) -> Result<Self, String> {
        if (1..=MAX_SHARES).contains(&self.shares) {
            return Ok(self);
        }
        Err(format!(
            "shares {}: must be within 1..={MAX_SHARES}",
            self.shares
        ))
    }

    /// Transaction of an order at a price, for an account with this much cash and this many of the shares.
    pub fn at(
        &self,
        sequence: u64,
        price_cents: i64,
        cash: i64,
        held: i64,
    ) -> Result<Transaction, Refusal> {
        let value = price_cents.saturating_mul(self.shares);
        let (cash_after, shares_after) = match self.side {
            Side::Purchase if value > cash => {
                return Err(Refusal::NotEnoughCash {
                    needed: value,
                    cash,
                });
            }
            Side::Purchase => (cash - value, held.saturating_add(self.shares)),
            Side::Sale if self.shares > held => return Err(Refusal::NotEnoughShares { held }),
            Side::Sale => (cash.saturating_add(value), held - self.shares),
        };
        Ok(Transaction {
            sequence,
            side: self.side,
            account: self.account,
            stock: self.stock,
            shares: self.shares,
            price_cents,
            cash_after,
            shares_after,
        })
    }
}
