//! The work of the fetcher, the VM that calls the agents for its whole process: it sends the workers' reports, follows
//! the ring, and publishes shares and rings to the other VMs.

use envoy_policy::{
    call::{Answered, Request},
    config::Settings,
    exchanger::{Exchanger, News, Purpose},
    told::Told,
};

use crate::{board::Board, host};

/// Makes the calls that are due at `now`, seconds, and takes silent VMs off the list of those that make reports.
pub fn fetch(exchanger: &mut Exchanger, board: &Board, settings: &Settings, now: f64) {
    let given_up = host::shared(&board.given_up());
    let given_up = given_up.and_then(|(value, _)| Some(u64::from_le_bytes(value.try_into().ok()?)));
    let (tellers, cas) = board.tellers();
    exchanger.look(tellers.len(), given_up, now);
    let ask = |exchanger: &mut Exchanger, purpose, request: &Request| {
        let called = host::ask(&settings.agents, settings.token.as_deref(), request);
        exchanger.called(purpose, request, called, now);
    };
    if exchanger.is_due(settings, Purpose::Shares, now) {
        let told = tellers
            .iter()
            .filter_map(|vm| Some((*vm, told(board, *vm)?)));
        let (request, silent) = exchanger.ask_shares(settings, told.collect(), now);
        if !silent.is_empty() {
            let live = tellers.into_iter().filter(|vm| !silent.contains(vm));
            board.set_tellers(&live.collect::<Vec<u32>>(), cas);
        }
        ask(exchanger, Purpose::Shares, &request);
    }
    if exchanger.is_due(settings, Purpose::Ring, now) {
        let request = exchanger.ask_ring(settings);
        ask(exchanger, Purpose::Ring, &request);
    }
}

fn told(board: &Board, vm: u32) -> Option<Told> {
    let (value, _) = host::shared(&board.told(vm))?;
    serde_json::from_slice(&value).ok()
}

/// Takes an agent's answer, and publishes the shares or the ring in it.
pub fn on_answer(
    exchanger: &mut Exchanger,
    board: &Board,
    settings: &Settings,
    (token, answered): (u64, Answered),
) {
    let Some(news) = exchanger.on_answer(settings, token, answered, host::now()) else {
        return;
    };
    let numbers = exchanger.numbers();
    match news {
        News::Shares(granted) => {
            for (vm, shares) in granted {
                let value = shares.map(|shares| serde_json::to_vec(&(numbers.0, shares)));
                if let Some(Ok(value)) = value {
                    host::share(&board.share(vm), &value);
                }
            }
        }
        News::Ring => {
            if let Some(ring) = exchanger.ring() {
                host::share(&board.ring(), &ring.to_bytes());
            }
        }
    }
    board.set_numbers(numbers);
}
