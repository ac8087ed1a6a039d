package device

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// silentDriver is a set of drivers, one of which does not answer until release is closed.
type silentDriver struct {
	called, release chan struct{}
}

func (s silentDriver) Prepare(
	ctx context.Context,
	driver string,
	claims []Claim,
) (map[types.UID][]Device, map[types.UID]error, error) {
	if driver == "silent" {
		s.called <- struct{}{}
		select {
		case <-s.release:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	got := map[types.UID][]Device{}
	for _, c := range claims {
		got[c.UID] = []Device{{CDI: []string{driver + "/x=" + c.Name}}}
	}
	return got, nil, nil
}

func (silentDriver) Unprepare(context.Context, string, Claim) error { return nil }

// A driver that does not answer only blocks the pods that need it.
func TestASilentDriverBlocksOnlyItsOwnPods(t *testing.T) {
	claims := map[string]*resourcev1.ResourceClaim{}
	for name, driver := range map[string]string{"stuck": "silent", "fine": "quick"} {
		c := newClaim(name, "pod-of-"+name, "second")
		c.UID = types.UID(name)
		c.Status.Allocation.Devices.Results[0].Driver = driver
		claims[name] = c
	}
	drivers := silentDriver{make(chan struct{}, 1), make(chan struct{})}
	m := &Manager{
		Dir:     t.TempDir(),
		Plugins: drivers,
		ReadClaim: func(_ context.Context, _, name string) (*resourcev1.ResourceClaim, error) {
			if c := claims[name]; c != nil {
				return c, nil
			}
			return nil, errors.New("not found")
		},
	}
	if err := m.Load(); err != nil {
		t.Fatal(err)
	}
	stuck, second := make(chan error, 1), make(chan error, 1)
	go func() { stuck <- m.Prepare(t.Context(), newPod("pod-of-stuck", "stuck")) }()
	<-drivers.called
	for _, pod := range []*corev1.Pod{newPod("pod-of-fine", "fine"), {}} {
		if err := m.Prepare(t.Context(), pod); err != nil {
			t.Errorf("pod %q beside a silent driver: %v", pod.Name, err)
		}
	}
	if err := m.Unprepare(t.Context(), "uid-of-pod-of-fine"); err != nil {
		t.Errorf("take back beside a silent driver: %v", err)
	}
	// it shares the claim, and the driver is called once
	go func() { second <- m.Prepare(t.Context(), newPod("second", "stuck")) }()
	close(drivers.release)
	for _, done := range []chan error{stuck, second} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if ids := m.IDs(newPod("second", "stuck"),
		&corev1.Container{Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "mine"}}}}); len(
		ids,
	) != 1 ||
		ids[0] != "silent/x=stuck" {
		t.Errorf("devices of the second pod: %v", ids)
	}
	if len(drivers.called) != 0 {
		t.Error("the driver was asked twice about a claim that was prepared")
	}
}
