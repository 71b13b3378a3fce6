//! The application of the hand-over tests, running in one of the two languages.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use headwater::kafka::{Kafka, KafkaOptions};
use headwater::prelude::*;
use headwater::{Headwater, StreamsConfig};

use super::topology::topology;
use crate::environment::streams_jars;

/// The Java program is one file, which `java` compiles itself.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kafka/java/HandOver.java");
/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_mins(3);
const POLL: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub(super) enum Language {
    Java,
    Rust,
}

/// A running application.
pub(super) enum Application {
    Java { program: Child, said: PathBuf },
    Rust(Box<Instance>),
}

impl Application {
    /// Starts the application. The names are those of the bootstrap servers, the application, its input and its output;
    /// `home` is an empty directory.
    pub(super) async fn start(language: Language, names: [&str; 4], home: &Path) -> Self {
        match language {
            Language::Java => Self::start_java(names, home),
            Language::Rust => Self::Rust(Box::new(start_rust(names, home).await)),
        }
    }

    fn start_java(names: [&str; 4], home: &Path) -> Self {
        let said = home.join("said.txt");
        let program = Command::new("java")
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &streams_jars()])
            .arg(PROGRAM)
            .args(names)
            .arg(home.join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        Self::Java { program, said }
    }

    /// Waits until something holds, as long as the application runs.
    pub(super) async fn wait_until(&mut self, holds: impl AsyncFn() -> bool) {
        let reached = async {
            while !holds().await {
                if let Some(ending) = self.ending() {
                    panic!("the application has ended: {ending}");
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let in_time = tokio::time::timeout(LIMIT, reached).await;
        assert!(in_time.is_ok(), "nothing came of it in {LIMIT:?}");
    }

    /// How it ended, if it did.
    fn ending(&mut self) -> Option<String> {
        match self {
            Self::Java { program, said } => {
                let status = program.try_wait().unwrap()?;
                Some(format!("{status}\n{}", fs::read_to_string(said).unwrap()))
            }
            Self::Rust(instance) => instance.error().map(|error| error.to_string()),
        }
    }

    /// Ends the application in good order: all is committed, and it has left its group.
    pub(super) async fn end(self) {
        match self {
            Self::Java { mut program, said } => {
                drop(program.stdin.take());
                let status = tokio::task::spawn_blocking(move || program.wait()).await.unwrap();
                assert!(status.unwrap().success(), "{}", fs::read_to_string(said).unwrap());
            }
            Self::Rust(instance) => instance.close(LIMIT).await.unwrap(),
        }
    }
}

async fn start_rust([bootstrap, application, input, output]: [&str; 4], home: &Path) -> Instance {
    let config = StreamsConfig::new(application)
        .state_dir(home)
        .commit_interval_ms(100)
        .statestore_cache_max_bytes(0)
        .outer_join_emit_interval_ms(0);
    let broker = Kafka::connect(KafkaOptions::new(bootstrap.parse().unwrap())).await.unwrap();
    Headwater::builder(topology(input, output).unwrap())
        .config(config)
        .broker(Arc::new(broker))
        .start()
        .await
        .unwrap()
}
