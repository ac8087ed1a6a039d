package step_test

import (
	"errors"
	"testing"

	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/step"
)

// unreadableHost is a machine whose disk fails when a directory is listed.
type unreadableHost struct{ *hostfake.Host }

func (unreadableHost) List(string) ([]string, error) { return nil, errors.New("input/output error") }

// Otherwise a member would be removed from etcd, and would join again without its data.
func TestMembersWithUnreadableDisksDoNotRejoin(t *testing.T) {
	join := &step.EtcdJoin{Name: "one", PeerURL: "https://10.0.0.1:2380", DataDir: "/var/lib/etcd"}
	if changes, err := step.Check(t.Context(), unreadableHost{&hostfake.Host{}}, []step.Step{join}); err == nil {
		t.Errorf("it is planned to %+v", changes)
	}
	changes, err := step.Check(t.Context(), &hostfake.Host{}, []step.Step{join})
	if err != nil || changes[0].Action != step.Create {
		t.Errorf("on a machine without data: %+v, %v", changes, err)
	}
}
