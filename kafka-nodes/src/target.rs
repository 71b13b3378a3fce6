//! What a node runs as.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::{Engine, Installation, NodesError};

/// What a node runs as. Its text, `jvm:DIRECTORY` or `docker:IMAGE`, can be handed to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A JVM with Kafka's jars.
    Jvm(Installation),
    /// A container.
    Container {
        /// Who runs it.
        engine: Engine,
        /// Its image: `apache/kafka` or one that is like it.
        image: String,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jvm(installation) => write!(f, "jvm:{}", installation.directory().display()),
            Self::Container { engine, image } => write!(f, "{}:{image}", engine.program()),
        }
    }
}

impl FromStr for Target {
    type Err = NodesError;

    fn from_str(text: &str) -> Result<Self, NodesError> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "jvm" => Installation::open(Path::new(rest)).map(Self::Jvm),
            program @ ("docker" | "podman") if !rest.is_empty() => {
                Ok(Self::Container { engine: Engine::new(program)?, image: rest.to_owned() })
            }
            _ => Err(NodesError::NoTarget { text: text.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn what_is_no_target_is_named() {
        for text in ["", "docker:", "rkt:kafka"] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is no target")), "{error}");
        }
        let error = "jvm:/nowhere".parse::<Target>().unwrap_err().to_string();
        assert_eq!(error, "cannot use /nowhere: it is no complete installation of Kafka");
    }
}
