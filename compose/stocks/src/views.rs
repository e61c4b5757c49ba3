//! Which rows a query touches.

use anyhow::Result;

use crate::catalog::Catalog;
use crate::reader::{Items, Reader};
use crate::rows::Key;

/// The stock, its quote and its newest history rows; beyond those, other stocks of its sector.
pub fn stock(reader: &mut Reader, catalog: &Catalog, stock: u32, items: usize) -> Result<Items> {
    let keys: Vec<Key> = catalog
        .sector_from(stock)
        .flat_map(|id| {
            [Key::Stock(id), Key::Quote(id)]
                .into_iter()
                .chain(history(catalog, id))
        })
        .take(items)
        .collect();
    let mut found = Items::default();
    reader.read(&keys, &mut found)?;
    Ok(found)
}

/// The account, then holding, stock and quote of each stock held, then their history, newest
/// rows of all of them first.
pub fn portfolio(
    reader: &mut Reader,
    catalog: &Catalog,
    account: u32,
    items: usize,
) -> Result<Items> {
    let held = reader.held_stocks(account)?;
    let positions = held
        .iter()
        .flat_map(|&id| [Key::Holding(account, id), Key::Stock(id), Key::Quote(id)]);
    let days = (0..catalog.dimensions.history).flat_map(|back| {
        held.iter()
            .map(move |&id| Key::Day(day(catalog, id) + u64::from(back)))
    });
    let keys: Vec<Key> = std::iter::once(Key::Account(account))
        .chain(positions)
        .chain(days)
        .take(items)
        .collect();
    let mut found = Items::default();
    reader.read(&keys, &mut found)?;
    Ok(found)
}

fn history(catalog: &Catalog, stock: u32) -> impl Iterator<Item = Key> + use<> {
    let first = day(catalog, stock);
    (first..first + u64::from(catalog.dimensions.history)).map(Key::Day)
}

fn day(catalog: &Catalog, stock: u32) -> u64 {
    u64::from(stock) * u64::from(catalog.dimensions.history)
}
