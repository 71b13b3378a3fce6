//! A finished program of streams and tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_runtime::{Application, Program, StreamsConfig, TopologyOptimization, UserError};
use headwater_topology::{Topology as Graph, TopologyBuilder};

use crate::error::DslError;
use crate::store::{DslStores, GivenDslStores};
use crate::wiring::Behaviours;

/// What an application does: the graph and the behaviour of its nodes. Immutable, and shared by all
/// threads.
#[derive(Clone, Debug)]
pub struct Topology {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    builder: TopologyBuilder,
    behaviours: Behaviours,
    /// The graph without application id, for descriptions.
    graph: Graph,
    /// `None` where no setting plays a part.
    built_with: Option<BuiltWith>,
}

/// What a topology was built with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuiltWith {
    pub(crate) optimization: TopologyOptimization,
    /// What the builder itself says of stores.
    pub(crate) given: GivenDslStores,
    pub(crate) stores: DslStores,
}

/// A topology made out for an application.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ApplicationTopology {
    /// The structure, with the full names of all topics.
    pub graph: Graph,
    /// What the tasks of each sub-topology run, by the sub-topology's number.
    pub programs: BTreeMap<u32, Arc<Program>>,
    /// What runs for the global stores, if there are any.
    pub global: Option<Arc<Program>>,
}

impl Topology {
    pub(crate) fn new(
        builder: TopologyBuilder,
        behaviours: Behaviours,
        built_with: Option<BuiltWith>,
    ) -> Result<Self, DslError> {
        let graph = builder.build("")?;
        // Made once here so that whatever is wrong with types and serdes shows in `build`.
        behaviours.programs(&graph)?;
        behaviours.global_program(&graph)?;
        Ok(Self { inner: Arc::new(Inner { builder, behaviours, graph, built_with }) })
    }

    /// The description of the graph, as Kafka Streams prints it.
    pub fn describe(&self) -> String {
        self.inner.graph.describe()
    }

    /// The graph for the application of this id as JSON, for `headwater describe` and `headwater diff`:
    /// see [`Topology::describe_json`](Graph::describe_json).
    ///
    /// # Errors
    /// None that [`StreamsBuilder::build`](crate::StreamsBuilder::build) did not find before.
    pub fn describe_json(&self, application_id: &str) -> Result<String, DslError> {
        Ok(self.inner.builder.build(application_id)?.describe_json())
    }

    /// The graph, with internal topics named as for an application without id.
    pub fn graph(&self) -> &Graph {
        &self.inner.graph
    }

    /// The topology for the application of this id, which is part of the names of internal topics.
    ///
    /// # Errors
    /// None that [`StreamsBuilder::build`](crate::StreamsBuilder::build) did not find before.
    pub fn for_application(&self, application_id: &str) -> Result<ApplicationTopology, DslError> {
        let graph = self.inner.builder.build(application_id)?;
        let programs = self.inner.behaviours.programs(&graph)?;
        let global = self.inner.behaviours.global_program(&graph)?.map(Arc::new);
        Ok(ApplicationTopology { graph, programs, global })
    }

    /// One program of all sub-topologies together, for a driver that runs an application as a single
    /// task, as the test driver of Kafka Streams does. Instances run one for each sub-topology.
    ///
    /// # Errors
    /// As [`for_application`](Self::for_application).
    pub fn program_of_all(&self, graph: &Graph) -> Result<Arc<Program>, DslError> {
        Ok(Arc::new(self.inner.behaviours.program_of_all(graph)?))
    }
}

impl Application for Topology {
    fn topology(&self, application_id: &str) -> Result<Graph, UserError> {
        Ok(self.inner.builder.build(application_id)?)
    }

    fn programs(&self, topology: &Graph) -> Result<BTreeMap<u32, Arc<Program>>, UserError> {
        Ok(self.inner.behaviours.programs(topology)?)
    }

    fn global_program(&self, topology: &Graph) -> Result<Option<Arc<Program>>, UserError> {
        Ok(self.inner.behaviours.global_program(topology)?.map(Arc::new))
    }

    fn settings_not_built_with(&self, config: &StreamsConfig) -> Vec<&'static str> {
        let Some(built) = self.inner.built_with else { return Vec::new() };
        let stores = built.given.or(DslStores::in_config(config));
        let settings = [
            ("topology.optimization", built.optimization == config.topology_optimization),
            ("dsl.store.format", built.stores.format == stores.format),
            ("dsl.store.suppliers.class", built.stores.suppliers == stores.suppliers),
        ];
        settings.into_iter().filter(|(_, same)| !same).map(|(key, _)| key).collect()
    }
}
