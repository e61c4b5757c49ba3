//! The traits that a module implements to provide an HTTP filter.

use crate::{
    configuration::Configuration,
    stream::{Reply, Stream},
};

/// One configuration of a filter. Its hooks run on Envoy's main thread, except `filter`, which runs on workers.
pub trait HttpFilterConfig: Send + Sync {
    /// Makes the filter of a new stream.
    fn filter(&self, stream: &Stream<'_>) -> Box<dyn HttpFilter>;

    /// Called after [`ConfigScheduler::wake`](crate::ConfigScheduler::wake).
    fn on_wake(&self, _configuration: &Configuration) {}

    /// Called when a [call](Configuration::call) with this number has ended, answered or not.
    fn on_answer(&self, _configuration: &Configuration, _call: u64, _answer: Answer) {}
}

/// The filter of one stream if the module is among the HTTP filters, or of one attempt if it is among a router's
/// upstream filters. It is dropped at the end of the stream, possibly without any call of a hook, and after a panic.
pub trait HttpFilter {
    /// Called when the request headers have come; again if another filter has them run through the chain once more.
    fn on_request_headers(&mut self, _stream: &mut Stream<'_>) -> Next {
        Next::Continue
    }

    /// Called when the response headers pass on their way to the client.
    fn on_response_headers(&mut self, _stream: &mut Stream<'_>) {}

    /// Called after [`StreamScheduler::wake`](crate::StreamScheduler::wake), for a stream that waits.
    fn on_wake(&mut self, _stream: &mut Stream<'_>) -> Next {
        Next::Wait
    }

    /// Called at the end of the stream, whatever its outcome. Envoy does not call it for upstream filters.
    fn on_complete(&mut self, _stream: &mut Stream<'_>) {}
}

/// Decision on a request.
#[derive(Debug)]
pub enum Next {
    /// Pass it on to the next filter.
    Continue,
    /// Hold it, with its body, until the stream is woken.
    Wait,
    /// Answer it here.
    Answer(Reply),
}

/// Result of a call.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status; 0 if there is no complete answer.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
}
