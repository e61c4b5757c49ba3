//! Which stocks there are, by symbol and by sector: what an index would tell, kept in memory.

use std::collections::HashMap;

use rusqlite::Connection;

/// What the seed data depend on. Nodes that differ in any of it cannot replicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Dimensions {
    pub seed: u64,
    pub symbols: u32,
    pub history: u32,
    pub accounts: u32,
}

pub struct Catalog {
    pub dimensions: Dimensions,
    ids: HashMap<Box<str>, u32>,
    /// Sector and place in it, by stock.
    places: Vec<(usize, usize)>,
    sectors: Vec<Vec<u32>>,
}

impl Catalog {
    pub fn load(db: &Connection, dimensions: Dimensions) -> rusqlite::Result<Self> {
        let mut catalog = Self {
            dimensions,
            ids: HashMap::new(),
            places: Vec::new(),
            sectors: Vec::new(),
        };
        let mut select = db.prepare("SELECT id, symbol, sector FROM stocks ORDER BY id")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let (id, sector): (u32, usize) = (row.get(0)?, row.get(2)?);
            catalog
                .ids
                .insert(row.get::<_, String>(1)?.into_boxed_str(), id);
            if catalog.sectors.len() <= sector {
                catalog.sectors.resize(sector + 1, Vec::new());
            }
            catalog.places.push((sector, catalog.sectors[sector].len()));
            catalog.sectors[sector].push(id);
        }
        Ok(catalog)
    }

    pub fn stock(&self, symbol: &str) -> Option<u32> {
        self.ids.get(symbol).copied()
    }

    /// The stock itself, then the others of its sector in turn.
    pub fn sector_from(&self, stock: u32) -> impl Iterator<Item = u32> + '_ {
        let (sector, place) = self.places[stock as usize];
        let peers = &self.sectors[sector];
        peers[place..].iter().chain(&peers[..place]).copied()
    }
}
