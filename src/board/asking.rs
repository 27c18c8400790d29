//! Board: engines are asked by scraping them.

use std::sync::Arc;

use epp_plugin_api::{EndpointMeta, Observed};

use super::scrape::{self, Scraper};
use super::watch::{Health, Watch, Watched};
use crate::tasks::Tasks;

/// Asks engines through a scraper whose work is part of the app's tasks.
pub struct Asking {
    pub scraper: Scraper,
    pub tasks: Tasks,
}

impl Watch for Asking {
    fn watch(&self, meta: Arc<EndpointMeta>) -> Box<dyn Watched> {
        Box::new(self.scraper.watch(meta, &self.tasks))
    }
}

impl Watched for scrape::Watched {
    fn observed(&self) -> Observed {
        self.observed()
    }

    fn health(&self) -> Health {
        let scrape::ScrapeHealth { scrapes, errors, last_error, last_ok } = self.health();
        Health { scrapes, errors, last_error, last_ok }
    }

    fn update(&self, meta: Arc<EndpointMeta>) {
        self.update(meta);
    }

    fn renew(&self) {
        self.renew();
    }
}
