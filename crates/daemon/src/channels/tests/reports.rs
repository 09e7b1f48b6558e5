//! Values that applications report, and the places that their users have for them.

use qfabric_types::channel_wire::Report;

use super::*;

impl User<'_> {
    /// Reports this number of different values of the application.
    fn reports_values(&self, registration: RegistrationId, values: usize) {
        for value in 0..values {
            let attribute = format!("app.value-{value}");
            let report = Report { registration: registration.0, attribute: &attribute, value: 1 };
            self.fabric.report_of(&mut self.fabric.registry(), self.lease, &report);
        }
    }
}

#[test]
fn a_user_who_reports_very_many_values_keeps_no_other_user_from_reporting() {
    let host = Host::start(Vec::new());
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    alice.create("video").unwrap();
    [bob, root].iter().for_each(|user| user.open("video").unwrap());
    let refused = || host.fabric.report().reports_refused;
    let camera = alice.register("camera", "video", [0, 20]);
    alice.reports_values(camera, 300);
    assert_eq!(refused(), 300 - 224);
    bob.reports_values(bob.register("screen", "video", [0, 20]), 100);
    root.reports_values(root.register("sound", "video", [0, 20]), 300);
    assert_eq!(refused(), 300 - 224, "other users have their part, and root has no limit");
    alice.reports_values(camera, 224);
    assert_eq!(refused(), 300 - 224 + 100, "bob has the places of the values that were oldest");
    assert_eq!(host.fabric.report().nonsense, 0);
}
