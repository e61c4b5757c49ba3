//! What a module implements to be an HTTP filter.

use crate::{
    configuration::Configuration,
    stream::{Reply, Stream},
};

/// One configuration of a filter. Its hooks run on Envoy's main thread, but for `filter`, which runs on workers.
pub trait HttpFilterConfig: Send + Sync {
    /// A stream begins.
    fn filter(&self, stream: &Stream<'_>) -> Box<dyn HttpFilter>;

    /// Someone has called [`ConfigScheduler::wake`](crate::ConfigScheduler::wake).
    fn on_wake(&self, _configuration: &Configuration) {}

    /// A [call](Configuration::call) has ended.
    fn on_answer(&self, _configuration: &Configuration, _call: u64, _answer: Answer) {}
}

/// One stream's filter, among the HTTP filters or among a router's upstream ones: there, one for each attempt. It is
/// dropped when the stream is over, which may be without any other hook, and after a panic.
pub trait HttpFilter {
    /// Request headers have come. They may come again.
    fn on_request_headers(&mut self, _stream: &mut Stream<'_>) -> Next {
        Next::Continue
    }

    /// Response headers go out.
    fn on_response_headers(&mut self, _stream: &mut Stream<'_>) {}

    /// Someone has called [`StreamScheduler::wake`](crate::StreamScheduler::wake), while the stream waits.
    fn on_wake(&mut self, _stream: &mut Stream<'_>) -> Next {
        Next::Wait
    }

    /// The stream is over, however it ended. Envoy does not tell that to upstream filters.
    fn on_complete(&mut self, _stream: &mut Stream<'_>) {}
}

/// What is to be done with a request.
#[derive(Debug)]
pub enum Next {
    /// It goes on.
    Continue,
    /// It is held, with its body, until it is woken.
    Wait,
    /// It is answered here.
    Answer(Reply),
}

/// What came of a call.
#[derive(Debug)]
pub struct Answer {
    /// 0 where there is no answer, or only a part of one.
    pub status: u16,
    /// All of it.
    pub body: Vec<u8>,
}
