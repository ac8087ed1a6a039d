package kubelet

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestResourceMetricsCoverOnlyRunningContainers(t *testing.T) {
	o := Hollow("n", 4, 1<<30, netip.MustParsePrefix("10.0.0.0/24"), t.TempDir())
	box, err := o.Runtime.RunPodSandbox(t.Context(),
		&criapi.PodSandboxConfig{Metadata: &criapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string]string{"busy": "stress-ng --cpu 2 --cpu-load 25 --vm-bytes " +
		"64M", "idle": "sleep infinity", "gone": "sleep infinity"} {
		id, err := o.Runtime.CreateContainer(t.Context(), box, &criapi.ContainerConfig{
			Metadata: &criapi.ContainerMetadata{
				Name: name,
			}, Image: &criapi.ImageSpec{}, Command: strings.Fields(command)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Runtime.StartContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if name == "gone" {
			if err := o.Runtime.StopContainer(t.Context(), id, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	var text strings.Builder
	if err := o.WriteResource(t.Context(), &text); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	for _, want := range []string{
		"node_cpu_usage_seconds_total ", "node_memory_working_set_bytes 69206016 ",
		`container_cpu_usage_seconds_total{container="busy",namespace="n",pod="p"} `, `container_cpu_usage_seconds_total{container="idle",namespace="n",pod="p"} 0 `,
		`container_memory_working_set_bytes{container="busy",namespace="n",pod="p"} 6.815744e+07 `,
		`container_start_time_seconds{container="idle",namespace="n",pod="p"} `, `pod_memory_working_set_bytes{namespace="n",pod="p"} 6.9206016e+07 `, "scrape_error 0",
	} {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, want) }) {
			t.Errorf("no line begins with %s in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), `"gone"`) ||
		strings.Contains(text.String(), `{container="busy",namespace="n",pod="p"} 0 `) {
		t.Errorf("a container that ended uses something, or one that runs nothing:\n%s", text.String())
	}
}
