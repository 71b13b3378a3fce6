//! The network between an application and its Kafka breaks, falls silent, crawls and moves.

use std::time::Duration;

use tokio::time::Instant;

use crate::application::{Application, close};
use crate::environment::bootstrap;
use crate::fleet::figure;
use crate::logs::Log;
use crate::proxy::{Proxy, Weather};

/// Short enough to be waited for.
const SETTINGS: &str = "request.timeout.ms=2000\nsocket.connection.setup.timeout.ms=2000\n\
    session.timeout.ms=30000\nmetadata.max.age.ms=60000\n";

/// An application at work, with a proxy before its Kafka.
struct Way {
    application: Application,
    proxy: Proxy,
    instance: headwater::Instance,
    log: Log,
}

impl Way {
    async fn open() -> Self {
        let log = Log::from_now();
        let proxy = Proxy::before(&bootstrap()).await;
        let mut application = Application::prepare(2, SETTINGS).await;
        let instance = application.start(&proxy.address()).await;
        application.write(500).await;
        application.all_counted(&instance).await;
        Self { application, proxy, instance, log }
    }

    /// It goes on: nothing is lost, nothing twice.
    async fn goes_on(mut self, what: &str) {
        let began = Instant::now();
        self.application.write(500).await;
        self.application.all_counted(&self.instance).await;
        let took = began.elapsed().as_millis();
        figure(&format!("{what}: counts are whole {took} ms after it is over"));
        close(self.instance).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_cost_time_only() {
    let mut way = Way::open().await;
    // In the middle of whatever is said, over and over.
    way.proxy.weather(Weather::Cut(20_000));
    way.application.write(2_000).await;
    way.application.all_counted(&way.instance).await;
    // All of them, and nobody is there for a while.
    way.proxy.weather(Weather::Gone);
    way.application.write(500).await;
    figure(&way.log.line_with(&["WARN", "no connection to 127.0.0.1:"]).await);
    way.proxy.weather(Weather::Fair);
    way.goes_on("cut connections").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_network_is_given_up_after_the_request_timeout() {
    let mut way = Way::open().await;
    let began = Instant::now();
    way.proxy.weather(Weather::Silent);
    way.application.write(500).await;
    figure(&way.log.line_with(&["WARN", "cannot fetch", "no answer within"]).await);
    figure(&format!("the silence is told of after {} ms", began.elapsed().as_millis()));
    way.proxy.weather(Weather::Fair);
    way.goes_on("a silent network").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_and_a_slow_network_cost_time_only() {
    let mut way = Way::open().await;
    way.proxy.weather(Weather::Late(Duration::from_millis(150)));
    way.application.write(500).await;
    way.application.all_counted(&way.instance).await;
    // 20 kB in a second.
    way.proxy.weather(Weather::Slow(2_000));
    way.application.write(500).await;
    way.application.all_counted(&way.instance).await;
    way.proxy.weather(Weather::Fair);
    way.goes_on("a late and slow network").await;
}

/// As when a cluster gets new addresses, and a name points to another: those that were told before lead
/// nowhere, and the names in `bootstrap.servers` are asked again.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_move_are_found_through_the_bootstrap_servers() {
    let way = Way::open().await;
    way.proxy.move_nodes();
    way.goes_on("moved nodes").await;
    // And one that begins while they move.
    let way = Way::open().await;
    way.proxy.weather(Weather::Gone);
    way.proxy.move_nodes();
    way.log.line_with(&["WARN", "no connection to 127.0.0.1:"]).await;
    way.proxy.weather(Weather::Fair);
    way.goes_on("nodes that moved while nobody was there").await;
}
