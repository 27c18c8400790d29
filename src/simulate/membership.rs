//! Engines that fail, leave, come or become slow, and what the picker comes to know of that.

use std::time::Duration;

use super::run::{Run, What};
use super::schedule::{Change, Kind};

impl Run<'_, '_> {
    /// Something happens to an engine. The picker knows one scrape interval later whether it is there.
    pub(super) fn change(&mut self, change: Change) {
        let row = change.endpoint as usize;
        match change.what {
            Kind::Fail => {
                self.pool.fail(row, change.retry);
                self.lose_all(row);
            }
            Kind::Leave => self.pool.leave(row),
            Kind::Join => self.pool.join(row, self.now),
            Kind::Slow => {
                self.pool.change_speed(row, self.now, change.speed());
                self.schedule(row);
                return;
            }
        }
        self.at(self.now + self.stage.scrape_interval, What::List(change.endpoint));
    }

    /// The picker reads that an endpoint is gone, or there.
    pub(super) fn list(&mut self, row: usize) {
        let listing = self.pool.list(row);
        if let Some(picker) = self.chooser.picker() {
            if let Some(id) = listing.left {
                picker.left(id);
            }
            if let Some((id, name)) = &listing.came {
                picker.came(*id, name);
            }
        }
        self.show_board();
    }

    /// Everything ends that an engine worked on, and what is on its way there.
    fn lose_all(&mut self, row: usize) {
        self.scheduled[row] = None;
        self.stamps[row] += 1;
        let mut there: Vec<_> = self.live[row].drain().collect();
        there.sort_unstable_by_key(|(id, _)| *id);
        let mut lost: Vec<_> = there.into_iter().map(|(_, live)| live).collect();
        let mut coming: Vec<u32> = self.moving.iter().filter(|(_, it)| it.to == row).map(|(job, _)| *job).collect();
        coming.sort_unstable();
        lost.extend(coming.iter().filter_map(|job| self.moving.remove(job)).map(|it| it.live));
        for live in lost {
            self.count(row, -1);
            // What is held for it is given back before anybody else is told.
            drop(live.lasting);
            self.lost(live.job, live.arrived, row);
        }
    }

    /// A request is lost with its engine. It is picked for once more when the picker knows, or fails.
    pub(super) fn lost(&mut self, job: u32, arrived: Duration, row: usize) {
        if self.pool.retries(row) && !self.lost_once.contains_key(&job) {
            self.lost_once.insert(job, arrived);
            self.tally.retried();
            self.at(self.now + self.stage.scrape_interval, What::Again(job));
        } else {
            self.fail(job, "engine: gone".into());
        }
    }
}
