package device

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// silent is a set of drivers, one of which does not answer until let is closed.
type silent struct {
	asked, let chan struct{}
}

func (s silent) Prepare(
	ctx context.Context,
	driver string,
	claims []Claim,
) (map[types.UID][]Device, map[types.UID]error, error) {
	if driver == "silent" {
		s.asked <- struct{}{}
		select {
		case <-s.let:
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

func (silent) Unprepare(context.Context, string, Claim) error { return nil }

// A driver that does not answer only blocks the pods that need it.
func TestASilentDriverHoldsUpItsOwnPodsAlone(t *testing.T) {
	claims := map[string]*resourcev1.ResourceClaim{}
	for name, driver := range map[string]string{"stuck": "silent", "fine": "quick"} {
		c := allocated(name, "pod-of-"+name, "second")
		c.UID = types.UID(name)
		c.Status.Allocation.Devices.Results[0].Driver = driver
		claims[name] = c
	}
	drivers := silent{make(chan struct{}, 1), make(chan struct{})}
	m := &Manager{
		Dir:     t.TempDir(),
		Plugins: drivers,
		Read: func(_ context.Context, _, name string) (*resourcev1.ResourceClaim, error) {
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
	go func() { stuck <- m.Prepare(t.Context(), user("pod-of-stuck", "stuck")) }()
	<-drivers.asked
	for _, pod := range []*corev1.Pod{user("pod-of-fine", "fine"), {}} {
		if err := m.Prepare(t.Context(), pod); err != nil {
			t.Errorf("pod %q beside a silent driver: %v", pod.Name, err)
		}
	}
	if err := m.Unprepare(t.Context(), "uid-of-pod-of-fine"); err != nil {
		t.Errorf("take back beside a silent driver: %v", err)
	}
	// it shares the claim, and the driver is called once
	go func() { second <- m.Prepare(t.Context(), user("second", "stuck")) }()
	close(drivers.let)
	for _, done := range []chan error{stuck, second} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if ids := m.IDs(user("second", "stuck"),
		&corev1.Container{Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "mine"}}}}); len(
		ids,
	) != 1 ||
		ids[0] != "silent/x=stuck" {
		t.Errorf("devices of the second pod: %v", ids)
	}
	if len(drivers.asked) != 0 {
		t.Error("the driver was asked twice about a claim that was prepared")
	}
}
