package quota

import (
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func pod(requests, limits corev1.ResourceList, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{
				{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}},
			},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func service(t corev1.ServiceType, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		Spec: corev1.ServiceSpec{Type: t, Ports: []corev1.ServicePort{{Port: 80}, {Port: 443, NodePort: 30443}}},
	}
	change(s)
	return s
}

func claim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		Spec: corev1.PersistentVolumeClaimSpec{
			Resources: corev1.VolumeResourceRequirements{Requests: list("storage", "1Gi")},
		},
	}
	change(c)
	return c
}

func ptr[T any](v T) *T { return &v }

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// The test covers what objects use of a quota.
// Proves S12.
//
//style:long a table of objects, with the usage of each
func TestUsage(t *testing.T) {
	going := func(after time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: noon.Add(after)}, ptr(int64(30))
		}
	}
	for name, c := range map[string]struct {
		of   string
		obj  any
		want corev1.ResourceList
	}{
		"a pod": {"pods", pod(list("cpu", "100m", "memory", "1Gi", "example.com/gpu", "2", "hugepages-2Mi", "4Mi"),
			list("cpu", "1", "example.com/gpu", "2")),
			list("count/pods", "1", "pods", "1", "cpu", "100m", "requests.cpu", "100m", "memory", "1Gi",
				"requests.memory", "1Gi",
				"requests.example.com/gpu", "2", "hugepages-2Mi", "4Mi", "requests.hugepages-2Mi", "4Mi", "limits.cpu",
				"1")},
		"a pod that ended": {"pods",
			pod(list("cpu", "1"), nil, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			list("count/pods", "1")},
		"a pod that is ending": {"pods", pod(list("cpu", "1"), nil, going(time.Second)),
			list("count/pods", "1", "pods", "1", "cpu", "1", "requests.cpu", "1")},
		"a pod that takes its time, longer than a duration can be": {"pods",
			pod(list("cpu", "1"), nil, func(p *corev1.Pod) {
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: noon.Add(-time.Second)},
					ptr(int64(math.MaxInt64))
			}), list("count/pods", "1", "pods", "1", "cpu", "1", "requests.cpu", "1")},
		"a pod that should have ended": {"pods", pod(list("cpu", "1"), nil, going(-time.Minute)),
			list("count/pods", "1")},
		"a service inside": {"services", service("ClusterIP", func(*corev1.Service) {}),
			list("count/services", "1", "services", "1", "services.nodeports", "0", "services.loadbalancers", "0")},
		"a service on nodes": {"services", service("NodePort", func(*corev1.Service) {}),
			list("count/services", "1", "services", "1", "services.nodeports", "2", "services.loadbalancers", "0")},
		"a load balancer": {"services", service("LoadBalancer", func(*corev1.Service) {}),
			list("count/services", "1", "services", "1", "services.nodeports", "2", "services.loadbalancers", "1")},
		"a load balancer without node ports": {"services",
			service("LoadBalancer", func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = ptr(false) }),
			list("count/services", "1", "services", "1", "services.nodeports", "1", "services.loadbalancers", "1")},
		"a claim": {"persistentvolumeclaims", claim(func(*corev1.PersistentVolumeClaim) {}),
			list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "1Gi")},
		"a claim of a class": {"persistentvolumeclaims",
			claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr("fast") }),
			list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "1Gi",
				"fast.storageclass.storage.k8s.io/persistentvolumeclaims", "1",
				"fast.storageclass.storage.k8s.io/requests.storage", "1Gi")},
		"a claim that was larger": {"persistentvolumeclaims",
			claim(func(c *corev1.PersistentVolumeClaim) { c.Status.AllocatedResources = list("storage", "2Gi") }),
			list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "2Gi")},
		"a claim of a part of a byte": {"persistentvolumeclaims",
			claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = list("storage", "1500m") }),
			list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "2")},
		"a pod that asks for a class": {"pods", pod(list("deviceclass.resource.kubernetes.io/gpu", "2"), nil),
			list("count/pods", "1", "pods", "1", "requests.deviceclass.resource.kubernetes.io/gpu", "2")},
		"a config map": {"configmaps", &corev1.ConfigMap{},
			list("count/configmaps", "1", "configmaps", "1")},
		"metadata of a secret": {"secrets", &metav1.PartialObjectMetadata{},
			list("count/secrets", "1", "secrets", "1")},
		"metadata of a deployment": {"deployments.apps", &metav1.PartialObjectMetadata{},
			list("count/deployments.apps", "1")},
		"another's secrets": {"secrets.example.com", &metav1.PartialObjectMetadata{},
			list("count/secrets.example.com", "1")},
		"a claim of devices": {"resourceclaims.resource.k8s.io",
			&resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
				Requests: []resourcev1.DeviceRequest{
					{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: "ExactCount",
						Count: 2}},
					{FirstAvailable: []resourcev1.DeviceSubRequest{{DeviceClassName: "gpu",
						AllocationMode: "ExactCount",
						Count:          1}, {DeviceClassName: "gpu", AllocationMode: "ExactCount", Count: 3},
						{DeviceClassName: "nic", AllocationMode: "All"}}},
				}}}}, list("count/resourceclaims.resource.k8s.io", "1", "gpu.deviceclass.resource.k8s.io/devices", "5",
				"nic.deviceclass.resource.k8s.io/devices", "32")},
	} {
		t.Run(name, func(t *testing.T) {
			got := Usage(schema.ParseGroupResource(c.of), c.obj, noon, Lookups{})
			if !Same(got, c.want) {
				t.Errorf("got %v, want %v", text(got), text(c.want))
			}
			for r := range got {
				if of := CountedResources(r); !slices.Contains(of, schema.ParseGroupResource(c.of)) {
					t.Errorf("%s is counted of %v", r, of)
				}
			}
		})
	}
}

func text(l corev1.ResourceList) map[corev1.ResourceName]string {
	out := map[corev1.ResourceName]string{}
	for name, q := range l {
		out[name] = q.String()
	}
	return out
}

func TestUnknownNamesHaveNoUsage(t *testing.T) {
	for _, name := range []corev1.ResourceName{"apples", "count/", "requests.apples", "limits.example.com/gpu",
		".storageclass.storage.k8s.io/requests.storage", "fast.storageclass.storage.k8s.io/apples"} {
		if of := CountedResources(name); len(of) > 0 {
			t.Errorf("%s is counted of %v", name, of)
		}
	}
}

// A scope selects the objects that a quota covers.
// Proves S12.
func TestScopes(t *testing.T) {
	ended, high := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(9)) },
		func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" }
	across := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{
			PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
					{PodAffinityTerm: corev1.PodAffinityTerm{Namespaces: []string{"x"}}},
				},
			},
		}
	}
	newScope := func(scope corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator,
		values ...string) *corev1.ScopeSelector {
		return &corev1.ScopeSelector{
			MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
				{ScopeName: scope, Operator: op, Values: values},
			},
		}
	}
	plain, busy := pod(nil, nil), pod(list("cpu", "1"), nil)
	gold := claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr("gold") })
	for name, c := range map[string]struct {
		scopes   []corev1.ResourceQuotaScope
		selector *corev1.ScopeSelector
		in, out  []any
	}{
		"none": {nil, nil, []any{plain, gold, &corev1.Service{}}, nil},
		"terminating": {[]corev1.ResourceQuotaScope{"Terminating"}, nil, []any{pod(nil, nil, ended)},
			[]any{plain, gold, &corev1.Service{}}},
		"not terminating": {[]corev1.ResourceQuotaScope{"NotTerminating"}, nil, []any{plain},
			[]any{pod(nil, nil, ended)}},
		"best effort": {[]corev1.ResourceQuotaScope{"BestEffort"}, nil,
			[]any{plain, pod(list("example.com/gpu", "1"), nil)}, []any{busy}},
		"not best effort": {[]corev1.ResourceQuotaScope{"NotBestEffort"}, nil, []any{busy}, []any{plain}},
		"both": {[]corev1.ResourceQuotaScope{"NotBestEffort", "NotTerminating"}, nil, []any{busy},
			[]any{plain, pod(list("cpu", "1"), nil, ended)}},
		"as a selector": {nil, newScope("Terminating", "Exists"), []any{pod(nil, nil, ended)}, []any{plain}},
		"a priority":    {nil, newScope("PriorityClass", "In", "high"), []any{pod(nil, nil, high)}, []any{plain}},
		"no priority":   {nil, newScope("PriorityClass", "DoesNotExist"), []any{plain}, []any{pod(nil, nil, high)}},
		"another":       {nil, newScope("PriorityClass", "NotIn", "high"), []any{plain}, []any{pod(nil, nil, high)}},
		"any priority":  {nil, newScope("PriorityClass", "Exists"), []any{pod(nil, nil, high)}, []any{plain}},
		"across": {[]corev1.ResourceQuotaScope{"CrossNamespacePodAffinity"}, nil, []any{pod(nil, nil, across)},
			[]any{plain}},
		"attributes": {nil, newScope("VolumeAttributesClass", "In", "gold"), []any{gold},
			[]any{claim(func(*corev1.PersistentVolumeClaim) {}), plain}},
		"changing attributes": {nil, newScope("VolumeAttributesClass", "In", "old"),
			[]any{claim(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName = ptr("gold"), ptr("old")
			})}, []any{gold}},
	} {
		t.Run(name, func(t *testing.T) {
			q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Scopes: c.scopes, ScopeSelector: c.selector}}
			for i, obj := range c.in {
				if !Covers(q, obj) {
					t.Errorf("the quota is not about %d", i)
				}
			}
			for i, obj := range c.out {
				if Covers(q, obj) {
					t.Errorf("the quota is about %d of those it should not be", i)
				}
			}
		})
	}
}

func TestMissingResources(t *testing.T) {
	q := &corev1.ResourceQuota{
		Spec: corev1.ResourceQuotaSpec{
			Hard: list("requests.cpu", "1", "memory", "1Gi", "limits.cpu", "1", "pods", "9", "limits.ephemeral-storage",
				"1Gi"),
		},
	}
	p := pod(list("cpu", "1"), nil)
	if got := MissingResources(q, p); len(got) != 2 || got[0] != "limits.cpu for: c" || got[1] != "memory for: c" {
		t.Errorf("missing: %q", got)
	}
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "1Gi"), Limits: list("cpu", "1")}
	if got := MissingResources(q, p); len(got) != 0 {
		t.Errorf("missing though the pod says it: %q", got)
	}
}
