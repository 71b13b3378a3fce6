//! What is said to prove who this client is. Bytes in, bytes out.

use std::fmt::Write as _;

use rsasl::prelude::{Mechname, SASLClient, SASLConfig, Session, State};

use super::options::{Credentials, Sasl};
use super::token::BearerToken;

/// One authentication under way.
pub(super) enum Conversation {
    /// All is said in one message, to which nothing is answered.
    Once(Option<Vec<u8>>),
    /// The same, but a broker that refuses a token answers with the reason, and tells its error code when it
    /// is told to go on (RFC 7628, section 3.2.3).
    Bearer(Option<Vec<u8>>),
    /// `None` when all is said and proved.
    Scram(Option<Box<Session>>),
}

/// Why an authentication does not go on, without secrets.
pub(super) type Cause = String;

/// Why an authentication does not begin.
pub(super) enum NotBegun {
    /// It never can.
    Never(Cause),
    /// There is no token just now.
    NoToken(Cause),
}

impl From<Cause> for NotBegun {
    fn from(cause: Cause) -> Self {
        Self::Never(cause)
    }
}

impl Conversation {
    /// Begins with what this client has to say, or with what a token provider said.
    pub(super) async fn begin(sasl: &Sasl) -> Result<Self, NotBegun> {
        match sasl {
            Sasl::Plain(credentials) => Ok(Self::Once(Some(plain(credentials)?))),
            Sasl::Scram(_, credentials) => {
                let session = scram(sasl.mechanism(), credentials)?;
                Ok(Self::Scram(Some(session)))
            }
            Sasl::OAuthBearer(source) => {
                let token = source.token().await;
                let token = token.map_err(|error| NotBegun::NoToken(error.to_string()))?;
                Ok(Self::Bearer(Some(bearer(&token)?)))
            }
        }
    }

    /// The next message to the broker, after its answer to the last; `None` when all is said and the
    /// broker has proved what it has to.
    pub(super) fn next(&mut self, answer: Option<&[u8]>) -> Result<Option<Vec<u8>>, Cause> {
        match self {
            Self::Once(message) => Ok(message.take()),
            Self::Bearer(message) => Ok(match answer {
                Some(reason) if !reason.is_empty() => Some(b"\x01".to_vec()),
                _ => message.take(),
            }),
            Self::Scram(open) => {
                let Some(session) = open else { return Ok(None) };
                if let Some(answer) = answer {
                    check_scram(answer)?;
                }
                let mut message = Vec::new();
                // What the error holds may be bytes of the exchange.
                let state = session.step(answer, &mut message).map_err(|_| {
                    "its answer is not one of this mechanism, or does not prove that it knows the \
                     password"
                        .to_owned()
                })?;
                if let State::Finished(_) = state {
                    *open = None;
                }
                Ok((state.is_running() || !message.is_empty()).then_some(message))
            }
        }
    }
}

/// RFC 4616.
fn plain(Credentials { user, password }: &Credentials) -> Result<Vec<u8>, Cause> {
    if user.contains('\0') || password.expose().contains('\0') {
        return Err("name or password hold a zero byte, which PLAIN cannot say".to_owned());
    }
    Ok([b"\0", user.as_bytes(), b"\0", password.expose().as_bytes()].concat())
}

/// RFC 7628, with extensions as KIP-342 has them.
fn bearer(BearerToken { token, extensions }: &BearerToken) -> Result<Vec<u8>, Cause> {
    if token.is_empty() || !token.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the token is not one word of ASCII".to_owned());
    }
    let mut message = format!("n,,\u{1}auth=Bearer {}", token.expose());
    for (name, value) in extensions {
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
        if !is_name || name == "auth" || value.contains(['\u{1}', '\0']) {
            return Err(format!("{name} is no extension that can be said beside a token"));
        }
        // Writing into a text does not fail.
        let _written = write!(message, "\u{1}{name}={value}");
    }
    message.push_str("\u{1}\u{1}");
    Ok(message.into_bytes())
}

/// Rounds of hashing that a broker may ask for: fewer make the proof cheap to break, as RFC 7677 has
/// it, and more hold a thread for long. Kafka makes credentials with numbers in this range only.
const SCRAM_ROUNDS: std::ops::RangeInclusive<u32> = 4096..=16_384;

/// Refuses an answer of the broker that is neither its first message nor its last (RFC 5802).
fn check_scram(answer: &[u8]) -> Result<(), Cause> {
    let malformed = || "its answer is not one of SCRAM".to_owned();
    let text = std::str::from_utf8(answer).map_err(|_| malformed())?;
    if ["v=", "e="].iter().any(|last| text.len() > last.len() && text.starts_with(last)) {
        return Ok(());
    }
    let mut attributes = text.split(',');
    let mut value = |name: &str| attributes.next().and_then(|it| it.strip_prefix(name));
    let (Some(_nonce), Some(_salt), Some(rounds)) = (value("r="), value("s="), value("i=")) else {
        return Err(malformed());
    };
    match rounds.parse() {
        Ok(rounds) if SCRAM_ROUNDS.contains(&rounds) => Ok(()),
        Ok(rounds) => Err(format!(
            "it asks for {rounds} rounds of hashing, which must be from {} to {}",
            SCRAM_ROUNDS.start(),
            SCRAM_ROUNDS.end()
        )),
        Err(_) => Err(malformed()),
    }
}

fn scram(mechanism: &'static str, credentials: &Credentials) -> Result<Box<Session>, Cause> {
    let Credentials { user, password } = credentials;
    let config = SASLConfig::with_credentials(None, user.clone(), password.expose().to_owned());
    let config = config.map_err(|error| error.to_string())?;
    let name = Mechname::parse(mechanism.as_bytes()).map_err(|error| error.to_string())?;
    let session = SASLClient::new(config).start_suggested(&[name]);
    Ok(Box::new(session.map_err(|error| error.to_string())?))
}

/// Follows the answers of a broker, one a line, with `%` for the nonce that was sent; for the fuzz target.
///
/// # Panics
/// If it is believed without proof.
#[cfg(feature = "fuzzing")]
pub(crate) fn hear_scram(answers: &[u8]) {
    let credentials = Credentials { user: "user".to_owned(), password: "secret".into() };
    let session = scram("SCRAM-SHA-256", &credentials).expect("name and password can be said");
    let mut conversation = Conversation::Scram(Some(session));
    let first = conversation.next(None).expect("it begins").expect("with a message");
    let nonce = first.split(|byte| *byte == b',').find_map(|it| it.strip_prefix(b"r="));
    let nonce = nonce.expect("it holds a nonce");
    for answer in answers.split(|byte| *byte == b'\n') {
        let parts: Vec<&[u8]> = answer.split(|byte| *byte == b'%').collect();
        let Ok(next) = conversation.next(Some(&parts.join(nonce))) else { return };
        assert!(next.is_some(), "a broker without the password was believed");
    }
}

#[cfg(test)]
mod tests {
    use super::check_scram;

    #[test]
    fn answers_are_checked_before_they_are_followed() {
        let check = |answer: &[u8], expected: Result<(), &str>| {
            let found = check_scram(answer);
            match expected {
                Ok(()) => assert_eq!(found, Ok(()), "{answer:?}"),
                Err(part) => {
                    let error = found.expect_err("it is refused");
                    assert!(error.contains(part), "{answer:?}: {error}");
                }
            }
        };
        check(b"r=abc,s=c2FsdA==,i=4096", Ok(()));
        check(b"r=abc,s=c2FsdA==,i=16384", Ok(()));
        check(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=", Ok(()));
        check(b"e=invalid-proof", Ok(()));
        check(b"r=abc,s=c2FsdA==,i=1", Err("asks for 1 rounds"));
        check(b"r=abc,s=c2FsdA==,i=4294967295", Err("asks for 4294967295 rounds"));
        check(b"r=abc,s=c2FsdA==,i=99999999999", Err("not one of SCRAM"));
        for answer in [&b""[..], b"r=", b"r=x,", b"r=x,s=", b"v=", b"e", b"\xff\xfe", b"r=x,s=y,z"]
        {
            check(answer, Err("not one of SCRAM"));
        }
    }
}
