package role_test

import (
	"strings"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

func TestSnapshotsAreTakenByATimerOnMachinesWithAMember(t *testing.T) {
	control, other := machine("control", "10.0.0.1", config.RoleControlPlane), machine("other", "10.0.0.2",
		config.RoleControlPlane)
	c := cluster(control, other)
	c.Etcd.Members = 1
	c.Etcd.Snapshot = &config.Snapshot{
		Schedule:  config.Schedule{Cron: "0 */6 * * *", Jitter: time.Minute},
		Keep:      3,
		Directory: "/srv/snapshots",
		S3: &config.S3Bucket{
			Endpoint:  "https://s3",
			Bucket:    "b",
			Prefix:    "home",
			AccessKey: "id",
			SecretKey: "hidden-secret",
			CA:        "pem",
		},
	}
	for _, form := range []string{config.FormSystemd, config.FormStaticPods} {
		c.ControlPlaneForm = form
		found := map[string]step.Step{}
		for _, s := range steps(t, c, control) {
			found[s.Label()] = s
			if f, ok := s.(*step.File); ok && strings.Contains(string(f.Content), "hidden-secret") &&
				(!f.Secret || f.Mode != 0o600) {
				t.Errorf("%s: the object store's secret is in %s, mode %o", form, f.Path, f.Mode)
			}
		}
		timer, ok := found["file /etc/systemd/system/etcd-snapshot.timer"].(*step.File)
		if !ok || !strings.Contains(string(timer.Content), "OnCalendar=*-*-* 00,06,12,18:00:00 UTC\n") ||
			!strings.Contains(string(timer.Content), "RandomizedDelaySec=60s\n") {
			t.Errorf("%s: the timer is %v", form, timer)
		}
		service, ok := found["file /etc/systemd/system/etcd-snapshot.service"].(*step.File)
		if !ok ||
			!strings.Contains(string(service.Content),
				"ExecStart=/usr/local/bin/etcd snapshot /etc/kubernetes/etcd-snapshots.json\n") {
			t.Errorf("%s: the service is %v", form, service)
		}
		if d, ok := found["directory /srv/snapshots"].(*step.Directory); !ok || d.Mode != 0o700 {
			t.Errorf("%s: the directory is %v", form, d)
		}
		if found["unit etcd-snapshot.timer"] == nil {
			t.Errorf("%s: the timer is not started", form)
		}
		for _, s := range steps(t, c, other) {
			if s.Label() == "unit etcd-snapshot.timer" {
				t.Errorf("%s: a machine without a member takes snapshots", form)
			}
		}
	}
}

func steps(t *testing.T, c *config.Cluster, m config.Machine) []step.Step {
	t.Helper()
	list, err := role.Steps(role.Input{Cluster: c, Machine: m, State: newState("control"), Files: files{}})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
