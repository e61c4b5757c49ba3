//! Catalogue of the stocks by symbol and by sector: an in-memory index.

use std::collections::HashMap;

/// Parameters of the seed data. Nodes that differ in any of them cannot replicate.
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
    /// Creates a catalogue from symbol and sector of each stock, in the order of their ids.
    pub fn new(dimensions: Dimensions, stocks: impl IntoIterator<Item = (String, usize)>) -> Self {
        let mut catalog = Self {
            dimensions,
            ids: HashMap::new(),
            places: Vec::new(),
            sectors: Vec::new(),
        };
        for (id, (symbol, sector)) in (0..).zip(stocks) {
            catalog.ids.insert(symbol.into_boxed_str(), id);
            if catalog.sectors.len() <= sector {
                catalog.sectors.resize(sector + 1, Vec::new());
            }
            catalog.places.push((sector, catalog.sectors[sector].len()));
            catalog.sectors[sector].push(id);
        }
        catalog
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
