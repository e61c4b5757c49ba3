//! The messages of `xds/service/orca/v3/orca.proto` and `xds/data/orca/v3/orca_load_report.proto`
//! (<https://github.com/cncf/xds>), as far as they are used.

use std::{collections::HashMap, time::Duration};

/// `xds.service.orca.v3.OrcaLoadReportRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrcaLoadReportRequest {
    /// How often reports are wanted.
    #[prost(message, optional, tag = "1")]
    pub report_interval: Option<ProtoDuration>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ProtoDuration {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl ProtoDuration {
    /// `None` where it is negative or no time at all.
    pub fn positive(self) -> Option<Duration> {
        let seconds = u64::try_from(self.seconds).ok()?;
        let nanos = u32::try_from(self.nanos).ok()?;
        let duration =
            Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos.into()))?;
        (!duration.is_zero()).then_some(duration)
    }
}

/// `xds.data.orca.v3.OrcaLoadReport`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrcaLoadReport {
    /// Requests that ended per second.
    #[prost(double, tag = "6")]
    pub rps_fractional: f64,
    /// Those of them that failed.
    #[prost(double, tag = "7")]
    pub eps: f64,
    /// See `report`.
    #[prost(map = "string, double", tag = "8")]
    pub named_metrics: HashMap<String, f64>,
    /// Backlog over bound.
    #[prost(double, tag = "9")]
    pub application_utilization: f64,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn field_numbers_and_types_are_those_of_the_protocol() {
        let report = OrcaLoadReport {
            rps_fractional: 1.0,
            eps: 2.0,
            named_metrics: HashMap::from([("a".to_owned(), 3.0)]),
            application_utilization: 4.0,
        };
        let double = |tag: u8, value: f64| [&[tag << 3 | 1][..], &value.to_le_bytes()].concat();
        let entry = [&[0x0a, 1, b'a'][..], &double(2, 3.0)].concat();
        let named = [&[8 << 3 | 2, entry.len() as u8][..], &entry].concat();
        let bytes = [double(6, 1.0), double(7, 2.0), named, double(9, 4.0)].concat();
        assert_eq!(report.encode_to_vec(), bytes);
        // 1.5 s, and a name that is not read.
        let nanos = [0x80, 0xca, 0xb5, 0xee, 0x01];
        let interval = [&[0x08, 1, 0x10][..], &nanos].concat();
        let head = [0x0a, interval.len() as u8];
        let request = [&head[..], &interval, &[0x12, 1, b'x']].concat();
        let request = OrcaLoadReportRequest::decode(&request[..]).unwrap();
        let interval = request.report_interval.unwrap().positive();
        assert_eq!(interval, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn only_time_ahead_is_an_interval() {
        let positive = |seconds, nanos| ProtoDuration { seconds, nanos }.positive();
        assert_eq!(positive(1, 500_000_000), Some(Duration::from_millis(1500)));
        for (seconds, nanos) in [(0, 0), (-1, 0), (0, -1), (i64::MIN, i32::MIN)] {
            assert_eq!(positive(seconds, nanos), None);
        }
        assert!(positive(i64::MAX, i32::MAX).is_some());
    }
}
