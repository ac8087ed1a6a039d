package device

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	"k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
)

func newReport(
	device string,
	status healthv1.HealthStatus,
	message string,
	at time.Time,
	timeout int64,
) *healthv1.DeviceHealth {
	d := &healthv1.DeviceHealth{
		Device:                    &healthv1.DeviceIdentifier{PoolName: "n", DeviceName: device},
		Health:                    status,
		Message:                   message,
		HealthCheckTimeoutSeconds: timeout,
	}
	if !at.IsZero() {
		d.LastUpdatedTime = at.Unix()
	}
	return d
}

// A health report is valid for its timeout, starting when the driver checked the device. Expired health is unknown,
// which is reported as a change.
func TestHealthReportsExpire(t *testing.T) {
	const healthy, unhealthy = healthv1.HealthStatus_HEALTHY, healthv1.HealthStatus_UNHEALTHY
	now := time.Unix(10_000, 0)
	after := func(d time.Duration) time.Time { return now.Add(d) }
	h := &healthReports{}
	healthText := func(device string, at time.Time) string {
		status, message := h.condition("driver", "n", device, at)
		return strings.TrimSpace(string(status) + " " + message)
	}
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("nothing said", healthText("a", now), "Unknown")
	list := []*healthv1.DeviceHealth{
		newReport("a", healthy, "", time.Time{}, 0), newReport("b", unhealthy, "hot", after(-20*time.Second), 0),
		newReport("c", healthy, "", after(time.Hour), 90),
		newReport("d", healthv1.HealthStatus_UNKNOWN, "asleep", time.Time{},
			0), newReport("e", healthy, "", time.Time{}, 1<<62), newReport("f", healthy, "", time.Time{}, -5), nil,
	}
	if !h.update("driver", list, now) || h.update("driver", list, now) {
		t.Error("the callback must run when the health changes, and only then")
	}
	for _, c := range []struct {
		device string
		at     time.Duration
		want   string
	}{
		{"a", 29 * time.Second, "Healthy"}, {"a", 30 * time.Second, "Unknown"}, {"b", 9 * time.Second, "Unhealthy hot"},
		{"b", 10 * time.Second, "Unknown"},
		{"c", 89 * time.Second, "Healthy"}, {"c", 90 * time.Second, "Unknown"}, {"d", 0, "Unknown asleep"},
		{"e", 23 * time.Hour, "Healthy"}, {"e", 24 * time.Hour, "Unknown"},
		{"f", 29 * time.Second, "Healthy"}, {"f", 30 * time.Second, "Unknown"},
	} {
		check(fmt.Sprint(c.device, " after ", c.at), healthText(c.device, after(c.at)), c.want)
	}
	// A device that is no longer listed keeps its last health. Other drivers are not affected.
	if !h.update("driver", []*healthv1.DeviceHealth{newReport("a", unhealthy, "", time.Time{}, 0)},
		after(time.Second)) {
		t.Error("a device that is not healthy any more is no news")
	}
	check("a", healthText("a", after(time.Second)), "Unhealthy")
	check("b", healthText("b", after(time.Second)), "Unhealthy hot")
	if status, _ := h.condition("other", "n", "a", now); status != corev1.ResourceHealthStatusUnknown {
		t.Errorf("another driver's device is %s", status)
	}
	if drivers := h.expire(after(2 * time.Second)); len(drivers) != 0 {
		t.Errorf("something ran out at %v", drivers)
	}
	if drivers := h.expire(after(15 * time.Second)); len(drivers) != 1 || drivers[0] != "driver" {
		t.Errorf("what ran out is said of %v", drivers)
	}
	if h.expire(after(25 * time.Hour)); len(h.byDriver) != 0 {
		t.Errorf("what ran out is kept: %v", h.byDriver)
	}
	long := strings.Repeat("ä", 600)
	if got := truncateMessage(long); len(got) > corev1.ResourceHealthMessageMaxLength ||
		!strings.HasSuffix(got, "ä...") ||
		truncateMessage("a\xff") != "a�" {
		t.Errorf("a message of %d bytes is %q", len(long), got)
	}
}

// healthDriver is a driver that reports the health of its devices.
type healthDriver struct {
	healthv1.UnimplementedDRAResourceHealthServer
	reports chan []*healthv1.DeviceHealth
}

func (s *healthDriver) NodeWatchResources(
	_ *healthv1.NodeWatchResourcesRequest,
	to healthv1.DRAResourceHealth_NodeWatchResourcesServer,
) error {
	for {
		select {
		case <-to.Context().Done():
			return to.Context().Err()
		case list := <-s.reports:
			if list == nil {
				return fmt.Errorf("this stream is over")
			}
			if err := to.Send(&healthv1.NodeWatchResourcesResponse{Devices: list}); err != nil {
				return err
			}
		}
	}
}

// A container's status has the health of each of its devices, by claim and request, for each version of the health API.
func TestContainerStatusReportsTheHealthOfDevices(t *testing.T) {
	for _, service := range []string{healthv1.DRAResourceHealthService, v1alpha1.DRAResourceHealthService, ""} {
		t.Run("by "+service, func(t *testing.T) {
			dir := shortDir(t)
			sockets := filepath.Join(dir, "plugins_registry")
			if err := os.MkdirAll(sockets, 0o755); err != nil {
				t.Fatal(err)
			}
			m := newManager(t, dir, newClaim("c", "p"))
			s := &healthDriver{reports: make(chan []*healthv1.DeviceHealth)}
			d := &fakeDriver{name: "gpu.example.com", versions: []string{drav1.DRAPluginService}, health: s}
			if service != "" {
				d.versions = append(d.versions, service)
			}
			defer d.serve(t, sockets)()
			pod := newPod("p", "c")
			eventually(t, "the claim to be prepared", func() bool { return m.Prepare(t.Context(), pod) == nil })
			container := func(request string) *corev1.Container {
				return &corev1.Container{
					Name: "x",
					Resources: corev1.ResourceRequirements{
						Claims: []corev1.ResourceClaim{{Name: "mine", Request: request}},
					},
				}
			}
			text := func(c *corev1.Container) string {
				var words []string
				for _, s := range m.Status(pod, c) {
					words = append(words, string(s.Name)+":")
					for _, r := range s.Resources {
						words = append(words, string(r.ResourceID), string(r.Health))
						if r.Message != nil {
							words = append(words, *r.Message)
						}
					}
				}
				return strings.Join(words, " ")
			}
			const first, second = "gpu.example.com/n/d0", "gpu.example.com/n/d1"
			wants := func(c *corev1.Container, want string) {
				t.Helper()
				eventually(t, want+"; it is "+text(c), func() bool { return text(c) == want })
			}
			wants(container(""), "claim:mine: "+first+" Unknown "+second+" Unknown")
			wants(&corev1.Container{Name: "none"}, "")
			if users := m.Users("gpu.example.com"); len(users) != 1 || users[0] != types.UID("uid-of-p") ||
				len(m.Users("other")) != 0 {
				t.Errorf("who has its devices are %v", users)
			}
			if service == "" {
				return
			}
			s.reports <- []*healthv1.DeviceHealth{newReport("d0", healthv1.HealthStatus_HEALTHY, "", time.Time{}, 3600),
				newReport("d1", healthv1.HealthStatus_UNHEALTHY, "too hot", time.Time{}, 3600)}
			wants(container(""), "claim:mine: "+first+" Healthy "+second+" Unhealthy too hot")
			wants(container("gpu"), "claim:mine/gpu: "+first+" Healthy")
			wants(container("nic"), "claim:mine/nic: "+second+" Unhealthy too hot")
			s.reports <- nil // the kubelet watches the driver again
			s.reports <- []*healthv1.DeviceHealth{newReport("d0", healthv1.HealthStatus_UNHEALTHY, "", time.Time{},
				3600)}
			wants(container("gpu"), "claim:mine/gpu: "+first+" Unhealthy")
			// A device of an extended resource is reported under the claim that was created for it.
			pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "c",
				RequestMappings: []corev1.ContainerExtendedResourceRequest{
					{ContainerName: "x", ResourceName: "example.com/gpu", RequestName: "gpu"},
				}}
			wants(
				&corev1.Container{
					Name: "x",
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")},
					},
				},
				"claim:c/gpu: "+first+" Unhealthy",
			)
		})
	}
}

// A driver that keeps naming other devices does not grow the memory without limit.
func TestReportsOfUnlistedDevicesAreLimited(t *testing.T) {
	h, now := &healthReports{}, time.Unix(10_000, 0)
	for i := range 40 {
		var list []*healthv1.DeviceHealth
		for j := range 1000 {
			list = append(list, newReport(fmt.Sprint(i, "-", j), healthv1.HealthStatus_HEALTHY, "", time.Time{}, 1<<40))
		}
		h.update("driver", list, now)
	}
	if n := len(h.byDriver["driver"]); n > maxUnlisted+1000 {
		t.Errorf("%d devices are kept", n)
	}
}
