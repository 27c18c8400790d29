//! Requests that are being picked for, and sent once they are.

use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use epp_sim::model::{BlockNames, Prompt};
use futures_util::StreamExt;

use super::balance::Known;
use super::chooser::Chooser;
use super::picker::{Asked, Lasting, Pick};
use super::run::Run;

impl Run<'_, '_> {
    /// Has an endpoint chosen for a request that came at `arrived`.
    pub(super) fn choose(&mut self, number: u32, arrived: Duration) {
        match &mut self.chooser {
            Chooser::Rule(balance) => {
                let job = &self.stage.traffic.jobs[number as usize];
                let ids = self.stage.traffic.ids(job);
                let block_size = self.stage.engines[0].block_size;
                let names = || BlockNames::new(&Prompt::Tokens(ids.as_slice().into()), block_size, job.model.into());
                let known = Known { number, session: job.session, ids: &ids, names: &names, now: self.now };
                match balance.choose(&known, &self.pool) {
                    Some(row) => {
                        let pick = Pick { row, prefill: None, ids, lasting: Lasting::default() };
                        self.send(number, arrived, pick);
                    }
                    None => self.fail(number, "picker: there is no endpoint".into()),
                }
            }
            Chooser::Pipeline { .. } => self.come(number, arrived),
        }
    }

    /// Has the pipeline pick for a request that may go.
    pub(super) fn pick(&mut self, number: u32, arrived: Duration) {
        let job = self.job(number);
        let ids = self.stage.traffic.ids(job);
        let Chooser::Pipeline { picker, picking, .. } = &mut self.chooser else { return };
        let model = self.stage.traffic.models[job.model as usize].clone();
        let asked = Asked { number, session: job.session, model, ids, waited: self.now - arrived };
        let picker = picker.clone();
        picking.push(Box::pin(async move { (number, arrived, picker.pick(asked).await) }));
        self.take_picks();
    }

    /// Sends what has been picked.
    pub(super) fn take_picks(&mut self) {
        while let Chooser::Pipeline { picking, bell, .. } = &mut self.chooser {
            bell.0.store(false, Relaxed);
            let waker = Waker::from(bell.clone());
            match picking.poll_next_unpin(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some((number, arrived, picked))) => {
                    match picked {
                        Ok(pick) => self.send(number, arrived, pick),
                        Err(refused) => self.turn_away(number, Some(refused)),
                    }
                    self.departed(number);
                }
                Poll::Ready(None) => return,
                // Not all that can go on have been looked at.
                Poll::Pending if bell.0.load(Relaxed) => {}
                Poll::Pending => return,
            }
        }
    }
}
