//! Stores of windows and sessions that keep headers, for processors (KIP-1271).

use std::time::Duration;

use headwater::prelude::*;
use headwater::serde::Window;
use headwater::store::{Direction, KeyRange};
use headwater::{SessionStoreWithHeaders, TimestampedWindowStoreWithHeaders};
use headwater_testing::{Restart, TestRecord, TopologyTestDriver};

/// Keeps each word in a window of ten milliseconds and in a session, and tells what was there before: value and
/// first header. A word `-` deletes.
struct Keep {
    windows: TimestampedWindowStoreWithHeaders<String, String>,
    sessions: SessionStoreWithHeaders<String, String>,
}

fn shown(value: &str, headers: &Headers) -> String {
    let first = headers.iter().next();
    let first = first.map(|(name, value)| {
        format!("{name}={}", String::from_utf8_lossy(value.unwrap_or_default()))
    });
    format!("{value}[{}]", first.unwrap_or_default())
}

impl Processor<String, String, String, String> for Keep {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, String>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        let (Some(key), Some(word)) = (record.key, record.value) else { return Ok(()) };
        let (time, headers) = (record.timestamp, context.headers().clone());
        let start = time - time % 10;
        let session = Window { start, end: start + 5 };
        let mut before = Vec::new();
        if let Some(found) = self.windows.fetch_one(context, key, start)? {
            before.push(shown(&found.value, &found.headers));
        }
        let mut all = self.windows.fetch(context, key, 0, time)?;
        while let Some((start, found)) = all.next(context)? {
            before.push(format!("{start}:{}", shown(&found.value, &found.headers)));
        }
        if let Some(found) = self.sessions.fetch_session(context, key, session)? {
            before.push(shown(&found.aggregation, &found.headers));
        }
        let mut all = self.sessions.fetch(context, key)?;
        while let Some((session, found)) = all.next(context)? {
            let end = session.window.end;
            before.push(format!("{end}:{}", shown(&found.aggregation, &found.headers)));
        }
        if word == "-" {
            self.windows.delete(context, key, start)?;
            self.sessions.remove(context, key, session)?;
        } else {
            self.windows.put(context, key, (word, &headers), (time, start))?;
            self.sessions.put(context, key, session, word, &headers)?;
        }
        Ok(context.forward(record.with_value(Some(&before.join(" "))))?)
    }
}

fn topology(cached: bool) -> Topology {
    let (day, size) = (Duration::from_hours(24), Duration::from_millis(10));
    let builder = StreamsBuilder::new();
    let windows = Stores::timestamped_window_with_headers("windows", day, size, Utf8, Utf8);
    let sessions = Stores::session_with_headers("sessions", day, Utf8, Utf8);
    if cached {
        builder.add_state_store(windows.with_caching_enabled());
        builder.add_state_store(sessions.with_caching_enabled());
    } else {
        builder.add_state_store(windows);
        builder.add_state_store(sessions);
    }
    builder
        .stream("words", Consumed::with(Utf8, Utf8))
        .process(
            |context| {
                Ok(Keep {
                    windows: context.timestamped_window_store_with_headers("windows")?,
                    sessions: context.session_store_with_headers("sessions")?,
                })
            },
            Processed::new().with_stores(["windows", "sessions"]).named("keep"),
        )
        .to("before", Produced::with(Utf8, Utf8));
    builder.build().expect("the topology is right")
}

fn driver(cached: bool) -> TopologyTestDriver {
    TopologyTestDriver::builder(topology(cached)).build().expect("the driver starts")
}

fn pipe(driver: &TopologyTestDriver, word: &str, header: &str, time: i64) -> String {
    let mut headers = Headers::new();
    headers.add("h", Some(header.as_bytes()));
    let record = TestRecord::new("k".to_owned(), word.to_owned()).at(time).with_headers(headers);
    driver.create_input_topic("words", Utf8, Utf8).pipe_record(&record).expect("no task fails");
    let output = driver.create_output_topic::<String, String, _, _>("before", Utf8, Utf8);
    let last = output.read_key_values_to_list().expect("texts").pop();
    last.and_then(|(_, value)| value).expect("there is an answer")
}

#[test]
fn windows_and_sessions_keep_the_headers_that_they_are_given() {
    for cached in [false, true] {
        let driver = driver(cached);
        assert_eq!(pipe(&driver, "tea", "1", 12), "");
        let before = "tea[h=1] 10:tea[h=1] tea[h=1] 15:tea[h=1]";
        assert_eq!(pipe(&driver, "milk", "2", 14), before, "cached: {cached}");
        // What is lost is restored, headers included: they are in the records of the changelogs.
        driver.restart(Restart::crash().without_state()).expect("the task begins anew");
        let before = "milk[h=2] 10:milk[h=2] milk[h=2] 15:milk[h=2]";
        assert_eq!(pipe(&driver, "-", "3", 15), before, "cached: {cached}");
        assert_eq!(pipe(&driver, "tea", "4", 16), "", "cached: {cached}");
    }
}

#[test]
fn rows_and_changelogs_have_the_bytes_of_the_original() {
    let driver = driver(false);
    pipe(&driver, "tea", "1", 12);
    // The size of the headers, their count, name and value with their lengths as varints in zigzag; then the timestamp.
    let headers = [&[10_u8, 2, 2][..], b"h", &[2], b"1"].concat();
    let row = |name: &str| {
        let rows = driver.raw_store_entries(name, &KeyRange::all(), Direction::Forward);
        rows.expect("the store is there").pop().expect("there is a row").1
    };
    assert_eq!(row("windows"), [&headers[..], &12_i64.to_be_bytes(), b"tea"].concat());
    assert_eq!(row("sessions"), [&headers[..], b"tea"].concat());
    for store in ["windows", "sessions"] {
        let produced = driver.produced_records();
        let logged =
            produced.iter().find(|it| it.topic.as_str() == format!("test-{store}-changelog"));
        let logged = logged.expect("it is logged");
        assert_eq!(logged.value.as_deref(), Some(&b"tea"[..]));
        assert_eq!(logged.headers, [("h".to_owned(), Some(b"1".to_vec()))]);
    }
}
