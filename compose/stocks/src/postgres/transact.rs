//! Purchases and sales on a primary.

use std::cell::Cell;

use tokio_postgres::{Client, Error, Statement, Transaction as Begun};

use crate::transaction::{Order, Refusal, Transaction};

pub struct Writes {
    lock_account: Statement,
    held: Statement,
    price: Statement,
    set_cash: Statement,
    set_holding: Statement,
    drop_holding: Statement,
    order: Statement,
}

impl Writes {
    pub async fn prepare(client: &Client) -> Result<Self, Error> {
        let (lock_account, held, price, set_cash, set_holding, drop_holding, order) = tokio::try_join!(
            client.prepare("SELECT cash_cents FROM accounts WHERE id = $1 FOR UPDATE"),
            client.prepare("SELECT shares FROM holdings WHERE account_id = $1 AND stock_id = $2"),
            client.prepare("SELECT price_cents FROM quotes WHERE stock_id = $1"),
            client.prepare("UPDATE accounts SET cash_cents = $2 WHERE id = $1"),
            client.prepare(
                "INSERT INTO holdings VALUES ($1, $2, $3)
                 ON CONFLICT (account_id, stock_id) DO UPDATE SET shares = excluded.shares"
            ),
            client.prepare("DELETE FROM holdings WHERE account_id = $1 AND stock_id = $2"),
            client.prepare(
                "WITH made AS (
                    INSERT INTO orders (account_id, stock_id, side, shares)
                    VALUES ($1, $2, $3, $4) RETURNING id
                 )
                 INSERT INTO trades SELECT id, id, $5, $4 FROM made RETURNING id"
            ),
        )?;
        Ok(Self {
            lock_account,
            held,
            price,
            set_cash,
            set_holding,
            drop_holding,
            order,
        })
    }

    /// The account's row is locked until the standbys have applied the commit, so that
    /// transactions of one account follow each other, and those of others do not wait.
    pub async fn transact(
        &self,
        client: &mut Client,
        order: &Order,
        committing: &Cell<bool>,
    ) -> Result<Result<Transaction, Refusal>, Error> {
        let begun = client.transaction().await?;
        match self.make(&begun, order).await {
            Ok(Ok(made)) => {
                committing.set(true);
                begun.commit().await?;
                Ok(Ok(made))
            }
            // Now and not when it is dropped, which is sent only with the worker's next request:
            // the lock would be held until then.
            Ok(Err(refusal)) => {
                begun.rollback().await?;
                Ok(Err(refusal))
            }
            Err(error) => {
                // Fails only with the connection, which ends the transaction too.
                let _ = begun.rollback().await;
                Err(error)
            }
        }
    }

    async fn make(
        &self,
        begun: &Begun<'_>,
        order: &Order,
    ) -> Result<Result<Transaction, Refusal>, Error> {
        let (account, stock) = (i64::from(order.account), i64::from(order.stock));
        let Some(locked) = begun.query_opt(&self.lock_account, &[&account]).await? else {
            return Ok(Err(Refusal::UnknownAccount));
        };
        let held = begun.query_opt(&self.held, &[&account, &stock]).await?;
        let held = held.map_or(Ok(0), |row| row.try_get(0))?;
        let quoted = begun.query_one(&self.price, &[&stock]).await?;
        let mut planned = match order.at(0, quoted.try_get(0)?, locked.try_get(0)?, held) {
            Ok(planned) => planned,
            Err(refusal) => return Ok(Err(refusal)),
        };
        begun
            .execute(&self.set_cash, &[&account, &planned.cash_after])
            .await?;
        if planned.shares_after > 0 {
            let shares = planned.shares_after;
            begun
                .execute(&self.set_holding, &[&account, &stock, &shares])
                .await?;
        } else {
            begun
                .execute(&self.drop_holding, &[&account, &stock])
                .await?;
        }
        let (side, price) = (order.side.name(), planned.price_cents);
        let made = begun
            .query_one(
                &self.order,
                &[&account, &stock, &side, &order.shares, &price],
            )
            .await?;
        planned.sequence = made.try_get::<_, i64>(0)? as u64;
        Ok(Ok(planned))
    }
}
