//! Purchases and sales.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use super::{App, Arrival, ItemsResult, Reply};
use crate::metrics::Class;
use crate::pool::Work;
use crate::transaction::{self, Refusal, Side};
use crate::views;

/// Items of a transaction: its six rows, and a read of the stock.
const TRANSACTION_ITEMS: i64 = 20;
/// Account, holding, quote, order, trade and replication state.
const TRANSACTION_ROWS: usize = 6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    account: u32,
    symbol: String,
    shares: i64,
}

pub async fn purchase(
    app: State<Arc<App>>,
    headers: HeaderMap,
    query: ItemsResult,
    body: Bytes,
) -> Response {
    transact(app, Side::Purchase, &headers, query, &body).await
}

pub async fn sale(
    app: State<Arc<App>>,
    headers: HeaderMap,
    query: ItemsResult,
    body: Bytes,
) -> Response {
    transact(app, Side::Sale, &headers, query, &body).await
}

async fn transact(
    State(app): State<Arc<App>>,
    side: Side,
    headers: &HeaderMap,
    query: ItemsResult,
    body: &[u8],
) -> Response {
    let arrived = Instant::now();
    if !app.writes {
        let text = "this node is a slave: transactions go to the master or to a --primary";
        let mut response = app.message(StatusCode::METHOD_NOT_ALLOWED, text);
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static(""));
        return response;
    }
    let items = match query {
        Ok(Query(query)) => query.clamp(TRANSACTION_ITEMS),
        Err(bad) => return app.message(StatusCode::BAD_REQUEST, bad.body_text()),
    };
    let order: Order = match serde_json::from_slice(body) {
        Ok(order) => order,
        Err(bad) => return app.message(StatusCode::BAD_REQUEST, format!("body: {bad}")),
    };
    let node = match app.ready() {
        Ok(node) => node,
        Err(why) => return app.unavailable(Class::Transaction, why),
    };
    let Some(stock) = node.catalog.stock(&order.symbol) else {
        return app.message(StatusCode::NOT_FOUND, "no such symbol");
    };
    let order = transaction::Order {
        side,
        account: order.account,
        stock,
        shares: order.shares,
    };
    let order = match order.check() {
        Ok(order) => order,
        Err(why) => return app.message(StatusCode::BAD_REQUEST, why),
    };
    let claim = match app.claim(headers) {
        Ok(claim) => claim,
        Err(refused) => return *refused,
    };
    let catalog = Arc::clone(&node.catalog);
    let work: Work<Reply> = Box::new(move |reader| {
        let looked_at = items.saturating_sub(TRANSACTION_ROWS);
        let mut touched = views::stock(reader, &catalog, stock, looked_at)?;
        touched.hits += TRANSACTION_ROWS.min(items);
        let made = match reader.transact(&order)? {
            Ok(made) => made,
            Err(refusal) => return Ok((touched, refused(&refusal))),
        };
        let mut body = serde_json::to_vec(&made)?;
        body.push(b'\n');
        let reply = Reply {
            status: StatusCode::OK,
            body,
            sequence: Some(made.sequence),
        };
        Ok((touched, reply))
    });
    let entry = app.entry(Class::Transaction, headers, items);
    let arrival = Arrival {
        at: arrived,
        entry,
        claim,
    };
    app.answer(Class::Transaction, arrival, node, items, work)
        .await
}

fn refused(refusal: &Refusal) -> Reply {
    let (status, text) = match refusal {
        Refusal::UnknownAccount => (StatusCode::NOT_FOUND, "no such account".to_owned()),
        Refusal::NotEnoughCash { needed, cash } => (
            StatusCode::CONFLICT,
            format!("it costs {needed} cents and the account has {cash}"),
        ),
        Refusal::NotEnoughShares { held } => (
            StatusCode::CONFLICT,
            format!("the account holds {held} shares"),
        ),
    };
    Reply {
        status,
        body: json!({ "error": text }).to_string().into_bytes(),
        sequence: None,
    }
}
