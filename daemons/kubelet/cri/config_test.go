package cri

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/pod"
)

func TestReferencesAreExpanded(t *testing.T) {
	values := map[string]string{"A": "1", "EMPTY": ""}
	for in, want := range map[string]string{
		"plain": "plain", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$$(A)": "$(A)", "$(B)": "$(B)", "$A": "$A", "$(A": "$(A",
		"$": "$", "$$": "$", "$(EMPTY)": "", "": "",
	} {
		if got, err := expand(in, values, 100); got != want || err != nil {
			t.Errorf("%q became %q, want %q: %v", in, got, want, err)
		}
	}
}

// A pod of a few kilobytes must not use up the memory of its node.
func TestAnEnvironmentThatMultipliesIsRefused(t *testing.T) {
	doubles := []corev1.EnvVar{{Name: "A0", Value: "xxxxxxxx"}}
	for i := range 60 {
		doubles = append(doubles, corev1.EnvVar{Name: fmt.Sprintf("A%d", i+1),
			Value: strings.Repeat(fmt.Sprintf("$(A%d)", i), 2)})
	}
	large := corev1.EnvVar{Name: "LARGE", Value: strings.Repeat("x", 1<<20)}
	var copies []corev1.EnvFromSource
	for i := range 20 {
		copies = append(copies, corev1.EnvFromSource{Prefix: fmt.Sprintf("P%d_", i),
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "large"}}})
	}
	many := strings.Repeat("$(LARGE)", 1000)
	for name, spec := range map[string]corev1.Container{
		"doubling variables": {Env: doubles},
		"a long value":       {Env: []corev1.EnvVar{large, {Name: "B", Value: many}}},
		"many copies":        {EnvFrom: copies},
		"a long command":     {Env: []corev1.EnvVar{large}, Command: []string{many}},
		"long arguments": {Env: []corev1.EnvVar{large}, Args: slices.Repeat([]string{"$(LARGE)"}, 1000),
			Command: []string{"x"}},
	} {
		env, err := Env(t.Context(), &corev1.Pod{}, &spec, largeObjects{}, nil, pod.Node{})
		if err == nil {
			_, err = Container(&corev1.Pod{}, &spec, NodeSettings{}, ContainerExtras{Env: env})
		}
		if err == nil || !strings.Contains(err.Error(), "more than 6291456 bytes") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// References without an end take linear time.
	open := strings.Repeat("$(", 700_000)
	if got, err := expand(open, nil, maxProgram); got != open || err != nil {
		t.Errorf("%d bytes: %v", len(got), err)
	}
}

// largeObjects has a ConfigMap of 1 MiB.
type largeObjects struct{ Objects }

func (largeObjects) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{Data: map[string]string{"X": strings.Repeat("x", 1<<20)}}, nil
}

// With an empty variable, a sub-path would be another directory or the whole volume.
func TestAPathWithMissingVariablesIsRejected(t *testing.T) {
	env := []*runtime.KeyValue{{Key: "A", Value: []byte("1")}, {Key: "EMPTY"}}
	for in, want := range map[string]string{
		"plain": "plain", "x/$(A)/$(A)": "x/1/1", "$$(A)": "$(A)", "$(B)": "missing value for B",
		"$(EMPTY)":            "missing value for EMPTY",
		"$(A)/$(C)/$(B)/$(C)": "missing value for B, C",
	} {
		got, err := ExpandPath(in, env)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestHandlersReportRecursiveReadOnlyMounts(t *testing.T) {
	handlers := []*runtime.RuntimeHandler{
		{Name: ""},
		{Name: "runc", Features: &runtime.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}},
		{Name: "old", Features: &runtime.RuntimeHandlerFeatures{}},
	}
	for name, want := range map[string]bool{"": false, "runc": true, "old": false, "none": false} {
		if got := canMountRecursive(handlers, name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// Proves S31.
func TestResolverFollowsThePolicy(t *testing.T) {
	two := "2"
	r := Resolver{
		Cluster: []string{"10.96.0.10"},
		Domain:  "cluster.local",
		Host:    &runtime.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"example.org"}},
	}
	for _, c := range []struct {
		name string
		spec corev1.PodSpec
		want string
	}{
		{"cluster first", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst}, "10.96.0.10 | d.svc.cluster.local " +
			"svc.cluster.local cluster.local example.org | ndots:5"},
		{"host network", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, HostNetwork: true}, "192.0.2.1 | " +
			"example.org | "},
		{"host network with cluster names",
			corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirstWithHostNet, HostNetwork: true}, "10.96.0.10 | " +
				"d.svc.cluster.local svc.cluster.local cluster.local example.org | ndots:5"},
		{"default", corev1.PodSpec{DNSPolicy: corev1.DNSDefault}, "192.0.2.1 | example.org | "},
		{"none", corev1.PodSpec{DNSPolicy: corev1.DNSNone,
			DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}}}, "1.1.1.1 |  | "},
		{"overridden", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst,
			DNSConfig: &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &two}}}},
			"10.96.0.10 | d.svc.cluster.local svc.cluster.local cluster.local example.org | ndots:2"},
	} {
		d, omitted := r.PodConfig(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d"}, Spec: c.spec})
		if len(omitted) > 0 {
			t.Errorf("%s: %q", c.name, omitted)
		}
		got := strings.Join(d.Servers, " ") + " | " + strings.Join(d.Searches, " ") + " | " + strings.Join(d.Options,
			" ")
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestOmittedResolverEntriesAreReturned(t *testing.T) {
	long := strings.Repeat("a234567890.", 22) // characters
	var many, large []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("s%d.example", i))
	}
	for i := range 10 {
		large = append(large, fmt.Sprintf("%s%d", long, i))
	}
	for _, c := range []struct {
		name     string
		config   corev1.PodDNSConfig
		servers  int
		searches int
		omitted  []string // prefix and suffix of each message
	}{
		{"as many as there can be", corev1.PodDNSConfig{Nameservers: []string{"10.0.0.2", "10.0.0.3"},
			Searches: many[:32]}, 2, 32, nil},
		{"servers", corev1.PodDNSConfig{Nameservers: []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5",
			"10.0.0.6"}}, 3, 0,
			[]string{"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver " +
				"line is: 10.0.0.2 10.0.0.3 10.0.0.4"}},
		{"searches", corev1.PodDNSConfig{Searches: many}, 0, 32,
			[]string{"Search Line limits were exceeded, some search paths have been omitted, " +
				"the applied search line is: s0.example s1.example"}},
		{"long ones", corev1.PodDNSConfig{Searches: large}, 0, 8, []string{"Search Line limits were exceeded"}},
		{"one that is no domain", corev1.PodDNSConfig{Searches: []string{"a.example", long + long, "b.example"}}, 0, 2,
			[]string{"Search Line limits were exceeded, some search paths have been omitted, the applied search line " +
				"is: a.example b.example"}},
	} {
		d, omitted := Resolver{}.PodConfig(&corev1.Pod{Spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone,
			DNSConfig: &c.config}})
		if len(d.Servers) != c.servers || len(d.Searches) != c.searches || len(omitted) != len(c.omitted) {
			t.Errorf("%s: %d servers, %d searches, %q", c.name, len(d.Servers), len(d.Searches), omitted)
			continue
		}
		for i, want := range c.omitted {
			if !strings.HasPrefix(omitted[i], want) {
				t.Errorf("%s: %q, want %q", c.name, omitted[i], want)
			}
		}
	}
}

func TestServicesHaveEnvironmentVariables(t *testing.T) {
	services := []*corev1.Service{
		{
			ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "my-db"},
			Spec: corev1.ServiceSpec{
				ClusterIP: "10.96.0.7",
				Ports:     []corev1.ServicePort{{Name: "sql", Port: 5432, Protocol: corev1.ProtocolTCP}},
			},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "x"},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.8", Ports: []corev1.ServicePort{{Port: 1}}},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
			Spec: corev1.ServiceSpec{
				ClusterIP: "10.96.0.1",
				Ports:     []corev1.ServicePort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}},
			},
		},
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d"}}
	env, err := Env(context.Background(), p,
		&corev1.Container{Env: []corev1.EnvVar{{Name: "URL", Value: "$(MY_DB_PORT)"}}}, nil, services, pod.Node{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, kv := range env {
		got[kv.Key] = string(kv.Value)
	}
	for k, want := range map[string]string{
		"MY_DB_SERVICE_HOST": "10.96.0.7", "MY_DB_SERVICE_PORT": "5432", "MY_DB_SERVICE_PORT_SQL": "5432",
		"MY_DB_PORT_5432_TCP_ADDR": "10.96.0.7",
		"URL":                      "tcp://10.96.0.7:5432", "KUBERNETES_SERVICE_HOST": "10.96.0.1",
	} {
		if got[k] != want {
			t.Errorf("%s is %q, want %q", k, got[k], want)
		}
	}
	if _, ok := got["X_SERVICE_HOST"]; ok {
		t.Error("another namespace's service is there")
	}
	no := false
	p.Spec.EnableServiceLinks = &no
	if env := ServiceEnv(p, services); len(env) == 0 || string(env[0].Value) != "10.96.0.1" {
		t.Errorf("without links: %v", env)
	}
}

func TestRunAsNonRootIsEnforced(t *testing.T) {
	yes, zero, one := true, int64(0), int64(1)
	for name, c := range map[string]struct {
		sc    *corev1.SecurityContext
		image *runtime.Image
		ok    bool
	}{
		"image is root": {&corev1.SecurityContext{RunAsNonRoot: &yes}, &runtime.Image{}, false},
		"image has a user": {&corev1.SecurityContext{RunAsNonRoot: &yes},
			&runtime.Image{Uid: &runtime.Int64Value{Value: 5}}, true},
		"image has a name": {&corev1.SecurityContext{RunAsNonRoot: &yes}, &runtime.Image{Username: "www"}, false},
		"pod says root": {&corev1.SecurityContext{RunAsNonRoot: &yes, RunAsUser: &zero},
			&runtime.Image{Uid: &runtime.Int64Value{Value: 5}}, false},
		"pod says a user":  {&corev1.SecurityContext{RunAsNonRoot: &yes, RunAsUser: &one}, &runtime.Image{}, true},
		"nothing demanded": {nil, &runtime.Image{}, true},
	} {
		_, err := Container(&corev1.Pod{}, &corev1.Container{Name: "c", SecurityContext: c.sc}, NodeSettings{},
			ContainerExtras{Image: c.image})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSandboxSharesTheRequestedNamespaces(t *testing.T) {
	yes := true
	got := Sandbox(&corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true, ShareProcessNamespace: &yes}}, NodeSettings{},
		0).Linux.SecurityContext.NamespaceOptions
	want := &runtime.NamespaceOption{Network: runtime.NamespaceMode_NODE, Pid: runtime.NamespaceMode_POD}
	if !reflect.DeepEqual(got.String(), want.String()) {
		t.Errorf("got %v", got)
	}
}

// The supplemental groups and SELinux options of a pod apply to its sandbox and its containers. A container can
// override them.
// Proves S23.
func TestSandboxHasTheGroupsAndLabelsOfThePod(t *testing.T) {
	strict, label := corev1.SupplementalGroupsPolicyStrict, func(level string) *corev1.SELinuxOptions {
		return &corev1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: level}
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{
			SupplementalGroups:       []int64{7},
			SupplementalGroupsPolicy: &strict,
			SELinuxOptions:           label("s0"),
		},
		Containers: []corev1.Container{
			{Name: "a"},
			{Name: "b", SecurityContext: &corev1.SecurityContext{SELinuxOptions: label("s1")}},
		},
	}}
	box := Sandbox(p, NodeSettings{}, 0).GetLinux().GetSecurityContext()
	if box.GetSupplementalGroupsPolicy() != runtime.SupplementalGroupsPolicy_Strict ||
		!reflect.DeepEqual(box.GetSupplementalGroups(), []int64{7}) ||
		box.GetSelinuxOptions().GetLevel() != "s0" ||
		box.GetSelinuxOptions().GetType() != "t" {
		t.Errorf("the sandbox has %v", box)
	}
	for i, level := range []string{"s0", "s1"} {
		s, err := containerSecurity(p, &p.Spec.Containers[i], NodeSettings{}, &runtime.Image{})
		if err != nil {
			t.Fatal(err)
		}
		if s.GetSupplementalGroupsPolicy() != runtime.SupplementalGroupsPolicy_Strict ||
			s.GetSelinuxOptions().GetLevel() != level {
			t.Errorf("container %d has %v", i, s)
		}
	}
}
