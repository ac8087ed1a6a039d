package conformance

import (
	"encoding/base64"
	"reflect"
	"strings"
	"testing"
)

// podIn creates a pod.
func podIn(t *testing.T, c *client, namespace, name string) (path string, o object) {
	t.Helper()
	path = "/api/v1/namespaces/" + namespace + "/pods/" + name
	o = c.must(t, 201, post("/api/v1/namespaces/"+namespace+"/pods", object{
		"metadata": object{"name": name, "labels": object{"app": name}},
		"spec": object{
			"containers": []any{
				object{
					"name":      "c",
					"image":     "i",
					"resources": object{"requests": object{"cpu": "100m", "memory": "64Mi"}},
				},
			},
		},
	})).obj
	return path, o
}

// All kinds with replicas are scaled through a Scale in the same way.
// Proves S11.
func TestScaleIsTheSameForAll(t *testing.T) {
	c := shared(t)
	c.namespace(t, "scale")
	for _, s := range samples(t) {
		if s.Kind != "Deployment" && s.Kind != "ReplicaSet" && s.Kind != "StatefulSet" &&
			s.Kind != "ReplicationController" {
			continue
		}
		o, name := s.make("scale")
		c.must(t, 201, post(s.in("scale"), o))
		path := s.in("scale") + "/" + name + "/scale"
		a := c.must(t, 200, get("%s", path))
		if a.text("kind") != "Scale" || a.text("apiVersion") != "autoscaling/v1" || a.at("spec.replicas") != 1.0 ||
			a.text("status.selector") == "" ||
			a.text("metadata.name") != name {
			t.Errorf("%s: %s", s, a.raw)
		}
		if b := c.must(t, 200, put(path, with(a.obj, "spec.replicas", 3))); b.at("spec.replicas") != 3.0 {
			t.Errorf("%s: %s", s, b.raw)
		}
		c.refused(t, put(path, with(a.obj, "spec.replicas", 4)), 409, "Conflict", "the object has been modified")
		if b := c.must(t, 200, patch(path, "merge-patch+json", object{"spec": object{"replicas": 5}})); b.at(
			"spec.replicas",
		) != 5.0 {
			t.Errorf("%s: %s", s, b.raw)
		}
		bad := c.refused(
			t,
			patch(path, "merge-patch+json", object{"spec": object{"replicas": -1}}),
			422,
			"Invalid",
			"must be greater than or equal to 0",
		)
		if causeOf(bad, "spec.replicas") == nil {
			t.Errorf("%s: causes %v", s, bad.at("details.causes"))
		}
		if whole := c.must(t, 200, get("%s", s.in("scale")+"/"+name)); whole.at("spec.replicas") != 5.0 {
			t.Errorf("%s has %v replicas", s, whole.at("spec.replicas"))
		}
		c.refused(t, get("%s/missing/scale", s.in("scale")), 404, "NotFound", "not found")
		c.refused(t, post(path, a.obj), 405, "MethodNotAllowed", "")
	}
}

// A pod is bound once.
// Proves S11.
func TestPodsAreBoundOnce(t *testing.T) {
	c := shared(t)
	c.namespace(t, "binding")
	path, _ := podIn(t, c, "binding", "p")
	c.must(
		t,
		200,
		patch(
			path+"/status",
			"merge-patch+json",
			object{"status": object{"nominatedNodeName": "n2", "conditions": []any{
				object{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}}}},
		),
	)
	binding := object{
		"apiVersion": "v1",
		"kind":       "Binding",
		"metadata":   object{"name": "p"},
		"target":     object{"kind": "Node", "name": "n1"},
	}
	a := c.must(t, 201, post(path+"/binding", binding))
	if a.text("kind") != "Status" || a.text("status") != "Success" {
		t.Errorf("bound: %s", a.raw)
	}
	pod := c.must(t, 200, get("%s", path))
	if condition, _ := pod.at("status.conditions.0").(object); pod.text("spec.nodeName") != "n1" ||
		condition["type"] != "PodScheduled" ||
		condition["status"] != "True" ||
		condition["reason"] != nil ||
		condition["message"] != nil {
		t.Errorf("bound: %v %v", pod.at("spec.nodeName"), pod.at("status"))
	}
	if pod.at("status.nominatedNodeName") != nil {
		t.Errorf("it is promised %v still", pod.at("status.nominatedNodeName"))
	}
	c.refused(t, post(path+"/binding", binding), 409, "Conflict", `pod p is already assigned to node "n1"`)
	c.refused(
		t,
		post(path+"-not/binding", with(binding, "metadata.name", "p-not")),
		404,
		"NotFound",
		`pods "p-not" not found`,
	)
	podIn(t, c, "binding", "q")
	c.must(t, 201, post("/api/v1/namespaces/binding/bindings", with(binding, "metadata.name", "q")))
}

// A pod that is bound gets the topology labels of its node.
// Proves S11.
func TestPodsAreLabelledWithTheTopologyOfTheirNode(t *testing.T) {
	c := shared(t)
	c.namespace(t, "topology")
	c.must(t, 201, post("/api/v1/nodes", object{"metadata": object{"name": "topology-1", "labels": object{
		"topology.kubernetes.io/zone": "za", "topology.kubernetes.io/region": "ra", "other": "x"}}}))
	const pods = "/api/v1/namespaces/topology/pods"
	spec := object{"containers": []any{object{"name": "c", "image": "i"}}}
	place := func(name, node string) {
		c.must(
			t,
			201,
			post(
				pods+"/"+name+"/binding",
				object{
					"metadata": object{"name": name, "labels": object{"bound": "yes"}},
					"target":   object{"kind": "Node", "name": node},
				},
			),
		)
	}
	c.must(
		t,
		201,
		post(
			pods,
			object{
				"metadata": object{
					"name":   "bound",
					"labels": object{"topology.kubernetes.io/zone": "mine", "app": "a"},
				},
				"spec": spec,
			},
		),
	)
	place("bound", "topology-1")
	c.must(
		t,
		201,
		post(pods, object{"metadata": object{"name": "created"}, "spec": with(spec, "nodeName", "topology-1")}),
	)
	c.must(t, 201, post(pods, object{"metadata": object{"name": "elsewhere"}, "spec": spec}))
	place("elsewhere", "topology-not")
	for name, want := range map[string]object{
		"bound": {"topology.kubernetes.io/zone": "za", "topology.kubernetes.io/region": "ra", "app": "a",
			"bound": "yes"},
		"created":   {"topology.kubernetes.io/zone": "za", "topology.kubernetes.io/region": "ra"},
		"elsewhere": {"bound": "yes"},
	} {
		if got := c.must(t, 200, get("%s/%s", pods, name)).at("metadata.labels"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Evictions respect disruption budgets.
// Proves S11.
func TestEvictionsHeedBudgets(t *testing.T) {
	c := shared(t)
	c.namespace(t, "eviction")
	free, _ := podIn(t, c, "eviction", "free")
	eviction := func(name string) object {
		return object{
			"apiVersion": "policy/v1",
			"kind":       "Eviction",
			"metadata":   object{"name": name, "namespace": "eviction"},
		}
	}
	c.must(t, 201, post(free+"/eviction", with(eviction("free"), "deleteOptions", object{"dryRun": []any{"All"}})))
	c.must(t, 200, get("%s", free))
	c.must(t, 201, post(free+"/eviction", eviction("free")))
	c.refused(t, get("%s", free), 404, "NotFound", "")

	held, pod := podIn(t, c, "eviction", "held")
	c.must(t, 201, post("/apis/policy/v1/namespaces/eviction/poddisruptionbudgets", object{
		"metadata": object{
			"name": "b",
		}, "spec": object{"minAvailable": 1, "selector": object{"matchLabels": object{"app": "held"}}}}))
	// The pod is bound and ready. Evicting a pod that has not started does not count as a disruption.
	c.must(
		t,
		201,
		post(
			held+"/binding",
			object{"metadata": object{"name": "held"}, "target": object{"kind": "Node", "name": "n"}},
		),
	)
	c.must(
		t,
		200,
		patch(
			held+"/status",
			"merge-patch+json",
			object{
				"status": object{"phase": "Running", "conditions": []any{object{"type": "Ready", "status": "True"}}},
			},
		),
	)
	a := c.refused(
		t,
		post(held+"/eviction", eviction("held")),
		429,
		"TooManyRequests",
		"Cannot evict pod as it would violate the pod's disruption budget",
	)
	if a.text("details.causes.0.reason") != "DisruptionBudget" {
		t.Errorf("causes %v", a.at("details.causes"))
	}
	c.refused(
		t,
		post(
			held+"/eviction",
			with(eviction("held"), "deleteOptions", object{"preconditions": object{"uid": "other"}}),
		),
		409,
		"Conflict",
		uid(pod),
	)
}

// Ephemeral containers can be added to pods, but not removed.
// Proves S11.
func TestContainersAreAddedToPodsAndStay(t *testing.T) {
	c := shared(t)
	c.namespace(t, "ephemeral")
	path, _ := podIn(t, c, "ephemeral", "p")
	path += "/ephemeralcontainers"
	add := object{"spec": object{"ephemeralContainers": []any{object{"name": "debug", "image": "d"}}}}
	a := c.must(t, 200, patch(path, "strategic-merge-patch+json", add))
	if a.text("spec.ephemeralContainers.0.name") != "debug" ||
		a.text("spec.ephemeralContainers.0.terminationMessagePolicy") != "File" {
		t.Errorf("added %v", a.at("spec.ephemeralContainers"))
	}
	changed := object{"spec": object{"ephemeralContainers": []any{object{"name": "debug", "image": "other"}}}}
	c.refused(
		t,
		patch(path, "strategic-merge-patch+json", changed),
		422,
		"Invalid",
		`existing ephemeral containers "debug" may not be changed`,
	)
	for _, r := range []struct {
		extra   object
		message string
	}{
		{object{"ports": []any{object{"containerPort": 80}}}, "spec.ephemeralContainers[1].ports: Forbidden: cannot " +
			"be set for an Ephemeral Container"},
		{object{"resources": object{"limits": object{"cpu": "1"}}}, "spec.ephemeralContainers[1].resources: Forbidden"},
		{object{"livenessProbe": object{"exec": object{"command": []any{"a"}}}},
			"spec.ephemeralContainers[1].livenessProbe: Forbidden"},
		{object{"lifecycle": object{"preStop": object{"exec": object{"command": []any{"a"}}}}},
			"spec.ephemeralContainers[1].lifecycle: Forbidden"},
		{object{"targetContainerName": "nobody"}, `spec.ephemeralContainers[1].targetContainerName: Not found: "nobody"`},
		{object{"name": "c"}, `spec.ephemeralContainers[1].name: Duplicate value: "c"`},
	} {
		next := object{"name": "next", "image": "d"}
		for k, v := range r.extra {
			next[k] = v
		}
		both := append(append([]any{}, a.at("spec.ephemeralContainers").([]any)...), next)
		c.refused(t, put(path, with(a.obj, "spec.ephemeralContainers", both)), 422, "Invalid", r.message)
	}
	c.refused(
		t,
		put(path, with(a.obj, "spec.ephemeralContainers", []any{})),
		422,
		"Invalid",
		`existing ephemeral containers "debug" may not be removed`,
	)
}

// Only the CPU and memory of a pod can be resized.
// Proves S11.
func TestPodsAreResized(t *testing.T) {
	c := shared(t)
	c.namespace(t, "resize")
	path, _ := podIn(t, c, "resize", "p")
	resize := func(container object) call {
		return patch(
			path+"/resize",
			"strategic-merge-patch+json",
			object{"spec": object{"containers": []any{merge(object{"name": "c"}, container)}}},
		)
	}
	a := c.must(t, 200, resize(object{"resources": object{"requests": object{"cpu": "200m"}}}))
	if a.text("spec.containers.0.resources.requests.cpu") != "200m" ||
		a.text("spec.containers.0.resources.requests.memory") != "64Mi" ||
		a.at("metadata.generation") != 2.0 {
		t.Errorf("resized %v, generation %v", a.at("spec.containers"), a.at("metadata.generation"))
	}
	c.refused(t, resize(object{"image": "other"}), 422, "Invalid", "only cpu and memory resources are mutable")
	c.refused(
		t,
		resize(object{"resources": object{"requests": object{"cpu": nil}}}),
		422,
		"Invalid",
		"resource requests cannot be removed",
	)
	c.refused(
		t,
		resize(object{"resources": object{"limits": object{"cpu": "200m", "memory": "64Mi"}}}),
		422,
		"Invalid",
		"Pod QOS Class may not change as a result of resizing",
	)
	c.refused(
		t,
		resize(object{"resources": object{"limits": object{"cpu": "100m"}}}),
		422,
		"Invalid",
		"must be less than or equal to cpu limit of 100m",
	)
	c.refused(
		t,
		patch(
			path,
			"strategic-merge-patch+json",
			object{
				"spec": object{
					"containers": []any{object{"name": "c", "resources": object{"requests": object{"cpu": "1"}}}},
				},
			},
		),
		422,
		"Invalid",
		"pod updates may not change fields other than",
	)
}

// The same holds for resources of the pod as a whole.
// Proves S11.
func TestPodsAreResizedAsAWhole(t *testing.T) {
	c := shared(t)
	c.namespace(t, "whole")
	const pods = "/api/v1/namespaces/whole/pods"
	pod := func(name string, whole, own object) object {
		container := object{"name": "c", "image": "i", "resources": own}
		return object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name},
			"spec": object{"resources": whole, "containers": []any{container}}}
	}
	own := object{"requests": object{"cpu": "100m"}}
	c.refused(
		t,
		post(pods, pod("more", object{"requests": object{"cpu": "50m"}}, own)),
		422,
		"Invalid",
		`spec.resources.requests[cpu]: Invalid value: "50m": must be greater than or equal to aggregate container requests of 100m`,
	)
	c.refused(t, post(pods, pod("wide", object{"limits": object{"cpu": "1"}}, object{"limits": object{"cpu": "2"}})),
		422, "Invalid", "must be less than or equal to pod limits of 1")
	c.refused(t, post(pods, pod("other", object{"requests": object{"ephemeral-storage": "1Gi"}}, own)), 422, "Invalid",
		"unsupported pod-level resource")
	a := c.must(t, 201, post(pods, pod("p", object{"limits": object{"cpu": "1", "memory": "64Mi"}}, own)))
	if a.text("spec.resources.requests.cpu") != "100m" || a.text("spec.resources.requests.memory") != "64Mi" {
		t.Errorf("as a whole it requests %v", a.at("spec.resources.requests"))
	}
	resize := func(resources any) call {
		return patch(pods+"/p/resize", "merge-patch+json", object{"spec": object{"resources": resources}})
	}
	a = c.must(t, 200, resize(object{"requests": object{"cpu": "500m"}, "limits": object{"cpu": "2"}}))
	if a.text("spec.resources.requests.cpu") != "500m" || a.text("spec.resources.limits.cpu") != "2" ||
		a.text("spec.resources.limits.memory") != "64Mi" || a.at("metadata.generation") != 2.0 {
		t.Errorf("resized to %v, generation %v", a.at("spec.resources"), a.at("metadata.generation"))
	}
	c.refused(t, resize(object{"requests": object{"cpu": "50m"}}), 422, "Invalid",
		"must be greater than or equal to aggregate container requests of 100m")
	c.refused(t, resize(object{"limits": object{"memory": nil}}), 422, "Invalid",
		"spec.resources.limits[memory]: Forbidden: resource limits cannot be removed")
	c.refused(t, resize(nil), 422, "Invalid", "pod-level resources cannot be removed")
	c.refused(t, resize(object{"limits": object{"hugepages-2Mi": "2Mi"}, "requests": object{"hugepages-2Mi": "2Mi"}}),
		422, "Invalid", "only cpu and memory resources are mutable")
}

func merge(a, b object) object {
	out := clone(a)
	for k, v := range b {
		out[k] = v
	}
	return out
}

// Service accounts get tokens.
// Proves S11.
func TestServiceAccountsGetTokens(t *testing.T) {
	c := shared(t)
	c.namespace(t, "token")
	const path = "/api/v1/namespaces/token/serviceaccounts/default/token"
	ask := object{
		"apiVersion": "authentication.k8s.io/v1",
		"kind":       "TokenRequest",
		"spec":       object{"audiences": []any{"there"}, "expirationSeconds": 3600},
	}
	a := c.must(t, 201, post(path, ask))
	if a.text("kind") != "TokenRequest" || a.text("status.token") == "" || a.text("status.expirationTimestamp") == "" ||
		a.text("spec.audiences.0") != "there" {
		t.Errorf("token: %.300s", a.raw)
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(a.text("status.token"), ".")[1])
	if err != nil || !strings.Contains(string(claims), `"aud":["there"]`) {
		t.Errorf("claims %s, %v", claims, err)
	}
	account := c.must(t, 200, get("/api/v1/namespaces/token/serviceaccounts/default"))
	if a.text("metadata.uid") != account.text("metadata.uid") {
		t.Errorf("a token of %s for %s", a.text("metadata.uid"), account.text("metadata.uid"))
	}
	c.refused(
		t,
		post(path, with(ask, "spec.expirationSeconds", 60)),
		422,
		"Invalid",
		"may not specify a duration less than 10 minutes",
	)
	c.refused(
		t,
		post(path, with(ask, "spec.expirationSeconds", 0)),
		422,
		"Invalid",
		`TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 0: may not specify a duration less than 10 minutes`,
	)
	c.refused(
		t,
		post(path, with(ask, "metadata.name", "other")),
		422,
		"Invalid",
		"metadata.name: Invalid value: \"other\": must match the service account name if specified",
	)
	c.refused(
		t,
		post(path, with(ask, "metadata.namespace", "other")),
		400,
		"BadRequest",
		"the namespace of the provided object does not match the namespace sent on the request",
	)
	c.refused(
		t,
		post(path, with(ask, "metadata.uid", "other")),
		409,
		"Conflict",
		"the UID in the token request (other) does not match the UID of the service account",
	)
	c.refused(
		t,
		post("/api/v1/namespaces/token/serviceaccounts/missing/token", ask),
		404,
		"NotFound",
		`serviceaccounts "missing" not found`,
	)
	review := c.must(
		t,
		201,
		post(
			"/apis/authentication.k8s.io/v1/tokenreviews",
			object{"spec": object{"token": a.text("status.token"), "audiences": []any{"there"}}},
		),
	)
	if review.at("status.authenticated") != true ||
		review.text("status.user.username") != "system:serviceaccount:token:default" {
		t.Errorf("reviewed: %v", review.at("status"))
	}
}

// Reviews return the client's identity and rights.
// Proves S11.
func TestReviewsAnswer(t *testing.T) {
	c := shared(t)
	me := c.must(t, 201, post("/apis/authentication.k8s.io/v1/selfsubjectreviews", object{}))
	if me.text("kind") != "SelfSubjectReview" || me.text("status.userInfo.username") == "" {
		t.Errorf("me: %s", me.raw)
	}
	may := object{"resourceAttributes": object{"verb": "get", "resource": "pods", "namespace": "default"}}
	mine := c.must(t, 201, post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", object{"spec": may}))
	if mine.at("status.allowed") != true {
		t.Errorf("may I: %v", mine.at("status"))
	}
	theirs := c.must(
		t,
		201,
		post(
			"/apis/authorization.k8s.io/v1/subjectaccessreviews",
			object{"spec": merge(may, object{"user": "nobody"})},
		),
	)
	if theirs.at("status.allowed") != false {
		t.Errorf("may nobody: %v", theirs.at("status"))
	}
	c.must(
		t,
		201,
		post(
			"/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
			object{"metadata": object{"namespace": "default"}, "spec": merge(may, object{"user": "nobody"})},
		),
	)
	rules := c.must(
		t,
		201,
		post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", object{"spec": object{"namespace": "default"}}),
	)
	if list, _ := rules.at("status.resourceRules").([]any); len(list) == 0 {
		t.Errorf("rules: %v", rules.at("status"))
	}
	if cs := c.must(t, 200, get("/api/v1/componentstatuses")); len(cs.items()) == 0 ||
		cs.text("kind") != "ComponentStatusList" {
		t.Errorf("components: %s", cs.raw)
	}
}

// A certificate is approved through the subresource, once, and the decision cannot be changed.
// Proves S11.
func TestApprovalIsApart(t *testing.T) {
	c := shared(t)
	for _, s := range samples(t) {
		if s.Kind != "CertificateSigningRequest" {
			continue
		}
		o, name := s.make("")
		o = c.must(t, 201, post(s.everywhere(), o)).obj
		if at(o, "spec.username") == nil {
			t.Errorf("who asks is not in the request: %v", o["spec"])
		}
		path := s.everywhere() + "/" + name
		approved := with(
			o,
			"status.conditions",
			[]any{object{"type": "Approved", "status": "True", "reason": "R", "message": "M"}},
		)
		c.must(t, 200, put(path, approved))
		if a := c.must(t, 200, get("%s", path)); a.at("status.conditions") != nil {
			t.Errorf("a plain write approved: %v", a.at("status"))
		}
		a := c.must(t, 200, put(path+"/approval", with(approved, "metadata.resourceVersion", "")))
		if a.text("status.conditions.0.type") != "Approved" || a.text("status.conditions.0.lastUpdateTime") == "" {
			t.Errorf("approved: %v", a.at("status"))
		}
	}
}
