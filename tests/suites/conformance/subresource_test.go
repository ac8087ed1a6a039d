package conformance

import (
	"encoding/base64"
	"reflect"
	"strings"
	"testing"
)

// createPod creates a pod.
func createPod(t *testing.T, c *client, namespace, name string) (path string, o object) {
	t.Helper()
	path = "/api/v1/namespaces/" + namespace + "/pods/" + name
	o = c.mustAnswer(t, 201, post("/api/v1/namespaces/"+namespace+"/pods", object{
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
func TestScaleSubresourcesBehaveAlike(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "scale")
	for _, s := range readSamples(t) {
		if s.Kind != "Deployment" && s.Kind != "ReplicaSet" && s.Kind != "StatefulSet" &&
			s.Kind != "ReplicationController" {
			continue
		}
		o, name := s.newUnique("scale")
		c.mustAnswer(t, 201, post(s.namespacePath("scale"), o))
		path := s.namespacePath("scale") + "/" + name + "/scale"
		a := c.mustAnswer(t, 200, get("%s", path))
		if a.textAt("kind") != "Scale" || a.textAt("apiVersion") != "autoscaling/v1" ||
			a.valueAt("spec.replicas") != 1.0 ||
			a.textAt("status.selector") == "" ||
			a.textAt("metadata.name") != name {
			t.Errorf("%s: %s", s, a.raw)
		}
		if b := c.mustAnswer(t, 200,
			put(path, withValue(a.obj, "spec.replicas", 3))); b.valueAt("spec.replicas") != 3.0 {
			t.Errorf("%s: %s", s, b.raw)
		}
		c.mustRefuse(t, put(path, withValue(a.obj, "spec.replicas", 4)), 409, "Conflict", "the object has been "+
			"modified")
		if b := c.mustAnswer(t, 200, patch(path, "merge-patch+json", object{"spec": object{"replicas": 5}})); b.valueAt(
			"spec.replicas") != 5.0 {
			t.Errorf("%s: %s", s, b.raw)
		}
		bad := c.mustRefuse(t, patch(path, "merge-patch+json", object{"spec": object{"replicas": -1}}), 422, "Invalid",
			"must be greater than or equal to 0")
		if findCause(bad, "spec.replicas") == nil {
			t.Errorf("%s: causes %v", s, bad.valueAt("details.causes"))
		}
		if whole := c.mustAnswer(t, 200,
			get("%s", s.namespacePath("scale")+"/"+name)); whole.valueAt("spec.replicas") != 5.0 {
			t.Errorf("%s has %v replicas", s, whole.valueAt("spec.replicas"))
		}
		c.mustRefuse(t, get("%s/missing/scale", s.namespacePath("scale")), 404, "NotFound", "not found")
		c.mustRefuse(t, post(path, a.obj), 405, "MethodNotAllowed", "")
	}
}

// A pod is bound once.
// Proves S11.
func TestPodsCanBeBoundOnlyOnce(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "binding")
	path, _ := createPod(t, c, "binding", "p")
	c.mustAnswer(
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
	a := c.mustAnswer(t, 201, post(path+"/binding", binding))
	if a.textAt("kind") != "Status" || a.textAt("status") != "Success" {
		t.Errorf("bound: %s", a.raw)
	}
	pod := c.mustAnswer(t, 200, get("%s", path))
	if condition, _ := pod.valueAt("status.conditions.0").(object); pod.textAt("spec.nodeName") != "n1" ||
		condition["type"] != "PodScheduled" ||
		condition["status"] != "True" ||
		condition["reason"] != nil ||
		condition["message"] != nil {
		t.Errorf("bound: %v %v", pod.valueAt("spec.nodeName"), pod.valueAt("status"))
	}
	if pod.valueAt("status.nominatedNodeName") != nil {
		t.Errorf("it is promised %v still", pod.valueAt("status.nominatedNodeName"))
	}
	c.mustRefuse(t, post(path+"/binding", binding), 409, "Conflict", `pod p is already assigned to node "n1"`)
	c.mustRefuse(t, post(path+"-not/binding", withValue(binding, "metadata.name", "p-not")), 404, "NotFound",
		`pods "p-not" not found`)
	createPod(t, c, "binding", "q")
	c.mustAnswer(t, 201, post("/api/v1/namespaces/binding/bindings", withValue(binding, "metadata.name", "q")))
}

// A pod that is bound gets the topology labels of its node.
// Proves S11.
func TestPodsAreLabelledWithTheTopologyOfTheirNode(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "topology")
	c.mustAnswer(t, 201, post("/api/v1/nodes", object{"metadata": object{"name": "topology-1", "labels": object{
		"topology.kubernetes.io/zone": "za", "topology.kubernetes.io/region": "ra", "other": "x"}}}))
	const pods = "/api/v1/namespaces/topology/pods"
	spec := object{"containers": []any{object{"name": "c", "image": "i"}}}
	place := func(name, node string) {
		c.mustAnswer(
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
	c.mustAnswer(
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
	c.mustAnswer(t, 201, post(pods,
		object{"metadata": object{"name": "created"}, "spec": withValue(spec, "nodeName", "topology-1")}))
	c.mustAnswer(t, 201, post(pods, object{"metadata": object{"name": "elsewhere"}, "spec": spec}))
	place("elsewhere", "topology-not")
	for name, want := range map[string]object{
		"bound": {"topology.kubernetes.io/zone": "za", "topology.kubernetes.io/region": "ra", "app": "a",
			"bound": "yes"},
		"created":   {"topology.kubernetes.io/zone": "za", "topology.kubernetes.io/region": "ra"},
		"elsewhere": {"bound": "yes"},
	} {
		if got := c.mustAnswer(t, 200, get("%s/%s", pods, name)).valueAt("metadata.labels"); !reflect.DeepEqual(got,
			want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Evictions respect disruption budgets.
// Proves S11.
func TestEvictionsRespectDisruptionBudgets(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "eviction")
	free, _ := createPod(t, c, "eviction", "free")
	eviction := func(name string) object {
		return object{
			"apiVersion": "policy/v1",
			"kind":       "Eviction",
			"metadata":   object{"name": name, "namespace": "eviction"},
		}
	}
	c.mustAnswer(t, 201, post(free+"/eviction",
		withValue(eviction("free"), "deleteOptions", object{"dryRun": []any{"All"}})))
	c.mustAnswer(t, 200, get("%s", free))
	c.mustAnswer(t, 201, post(free+"/eviction", eviction("free")))
	c.mustRefuse(t, get("%s", free), 404, "NotFound", "")

	held, pod := createPod(t, c, "eviction", "held")
	c.mustAnswer(t, 201, post("/apis/policy/v1/namespaces/eviction/poddisruptionbudgets", object{
		"metadata": object{
			"name": "b",
		}, "spec": object{"minAvailable": 1, "selector": object{"matchLabels": object{"app": "held"}}}}))
	// The pod is bound and ready. Evicting a pod that has not started does not count as a disruption.
	c.mustAnswer(t, 201, post(held+"/binding",
		object{"metadata": object{"name": "held"}, "target": object{"kind": "Node", "name": "n"}}))
	c.mustAnswer(
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
	a := c.mustRefuse(t, post(held+"/eviction", eviction("held")), 429, "TooManyRequests",
		"Cannot evict pod as it would violate the pod's disruption budget")
	if a.textAt("details.causes.0.reason") != "DisruptionBudget" {
		t.Errorf("causes %v", a.valueAt("details.causes"))
	}
	c.mustRefuse(t, post(held+"/eviction", withValue(eviction("held"), "deleteOptions",
		object{"preconditions": object{"uid": "other"}})), 409, "Conflict", objectUID(pod))
}

// Ephemeral containers can be added to pods, but not removed.
// Proves S11.
func TestEphemeralContainersAreAddedAndStay(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "ephemeral")
	path, _ := createPod(t, c, "ephemeral", "p")
	path += "/ephemeralcontainers"
	add := object{"spec": object{"ephemeralContainers": []any{object{"name": "debug", "image": "d"}}}}
	a := c.mustAnswer(t, 200, patch(path, "strategic-merge-patch+json", add))
	if a.textAt("spec.ephemeralContainers.0.name") != "debug" ||
		a.textAt("spec.ephemeralContainers.0.terminationMessagePolicy") != "File" {
		t.Errorf("added %v", a.valueAt("spec.ephemeralContainers"))
	}
	changed := object{"spec": object{"ephemeralContainers": []any{object{"name": "debug", "image": "other"}}}}
	c.mustRefuse(t, patch(path, "strategic-merge-patch+json", changed), 422, "Invalid",
		`existing ephemeral containers "debug" may not be changed`)
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
		both := append(append([]any{}, a.valueAt("spec.ephemeralContainers").([]any)...), next)
		c.mustRefuse(t, put(path, withValue(a.obj, "spec.ephemeralContainers", both)), 422, "Invalid", r.message)
	}
	c.mustRefuse(t, put(path, withValue(a.obj, "spec.ephemeralContainers", []any{})), 422, "Invalid",
		`existing ephemeral containers "debug" may not be removed`)
}

// Only the CPU and memory of a pod can be resized.
// Proves S11.
func TestPodsAreResized(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "resize")
	path, _ := createPod(t, c, "resize", "p")
	resize := func(container object) call {
		return patch(path+"/resize", "strategic-merge-patch+json",
			object{"spec": object{"containers": []any{mergeObjects(object{"name": "c"}, container)}}})
	}
	a := c.mustAnswer(t, 200, resize(object{"resources": object{"requests": object{"cpu": "200m"}}}))
	if a.textAt("spec.containers.0.resources.requests.cpu") != "200m" ||
		a.textAt("spec.containers.0.resources.requests.memory") != "64Mi" ||
		a.valueAt("metadata.generation") != 2.0 {
		t.Errorf("resized %v, generation %v", a.valueAt("spec.containers"), a.valueAt("metadata.generation"))
	}
	c.mustRefuse(t, resize(object{"image": "other"}), 422, "Invalid", "only cpu and memory resources are mutable")
	c.mustRefuse(t, resize(object{"resources": object{"requests": object{"cpu": nil}}}), 422, "Invalid",
		"resource requests cannot be removed")
	c.mustRefuse(t, resize(object{"resources": object{"limits": object{"cpu": "200m", "memory": "64Mi"}}}), 422,
		"Invalid", "Pod QOS Class may not change as a result of resizing")
	c.mustRefuse(t, resize(object{"resources": object{"limits": object{"cpu": "100m"}}}), 422, "Invalid",
		"must be less than or equal to cpu limit of 100m")
	c.mustRefuse(
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

// Resources of the pod as a whole can be resized as those of a container are.
// Proves S11.
func TestPodLevelResourcesAreResized(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "whole")
	const pods = "/api/v1/namespaces/whole/pods"
	pod := func(name string, whole, own object) object {
		container := object{"name": "c", "image": "i", "resources": own}
		return object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name},
			"spec": object{"resources": whole, "containers": []any{container}}}
	}
	own := object{"requests": object{"cpu": "100m"}}
	c.mustRefuse(
		t,
		post(pods, pod("more", object{"requests": object{"cpu": "50m"}}, own)),
		422,
		"Invalid",
		`spec.resources.requests[cpu]: Invalid value: "50m": must be greater than or equal to aggregate container requests of 100m`,
	)
	c.mustRefuse(t, post(pods, pod("wide", object{"limits": object{"cpu": "1"}}, object{"limits": object{"cpu": "2"}})),
		422, "Invalid", "must be less than or equal to pod limits of 1")
	c.mustRefuse(t, post(pods, pod("other", object{"requests": object{"ephemeral-storage": "1Gi"}}, own)), 422,
		"Invalid",
		"unsupported pod-level resource")
	a := c.mustAnswer(t, 201, post(pods, pod("p", object{"limits": object{"cpu": "1", "memory": "64Mi"}}, own)))
	if a.textAt("spec.resources.requests.cpu") != "100m" || a.textAt("spec.resources.requests.memory") != "64Mi" {
		t.Errorf("as a whole it requests %v", a.valueAt("spec.resources.requests"))
	}
	resize := func(resources any) call {
		return patch(pods+"/p/resize", "merge-patch+json", object{"spec": object{"resources": resources}})
	}
	a = c.mustAnswer(t, 200, resize(object{"requests": object{"cpu": "500m"}, "limits": object{"cpu": "2"}}))
	if a.textAt("spec.resources.requests.cpu") != "500m" || a.textAt("spec.resources.limits.cpu") != "2" ||
		a.textAt("spec.resources.limits.memory") != "64Mi" || a.valueAt("metadata.generation") != 2.0 {
		t.Errorf("resized to %v, generation %v", a.valueAt("spec.resources"), a.valueAt("metadata.generation"))
	}
	c.mustRefuse(t, resize(object{"requests": object{"cpu": "50m"}}), 422, "Invalid",
		"must be greater than or equal to aggregate container requests of 100m")
	c.mustRefuse(t, resize(object{"limits": object{"memory": nil}}), 422, "Invalid",
		"spec.resources.limits[memory]: Forbidden: resource limits cannot be removed")
	c.mustRefuse(t, resize(nil), 422, "Invalid", "pod-level resources cannot be removed")
	c.mustRefuse(t, resize(object{"limits": object{"hugepages-2Mi": "2Mi"},
		"requests": object{"hugepages-2Mi": "2Mi"}}),
		422, "Invalid", "only cpu and memory resources are mutable")
}

func mergeObjects(a, b object) object {
	out := clone(a)
	for k, v := range b {
		out[k] = v
	}
	return out
}

// Service accounts get tokens.
// Proves S11.
func TestServiceAccountsGetTokens(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "token")
	const path = "/api/v1/namespaces/token/serviceaccounts/default/token"
	ask := object{
		"apiVersion": "authentication.k8s.io/v1",
		"kind":       "TokenRequest",
		"spec":       object{"audiences": []any{"there"}, "expirationSeconds": 3600},
	}
	a := c.mustAnswer(t, 201, post(path, ask))
	if a.textAt("kind") != "TokenRequest" || a.textAt("status.token") == "" ||
		a.textAt("status.expirationTimestamp") == "" ||
		a.textAt("spec.audiences.0") != "there" {
		t.Errorf("token: %.300s", a.raw)
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(a.textAt("status.token"), ".")[1])
	if err != nil || !strings.Contains(string(claims), `"aud":["there"]`) {
		t.Errorf("claims %s, %v", claims, err)
	}
	account := c.mustAnswer(t, 200, get("/api/v1/namespaces/token/serviceaccounts/default"))
	if a.textAt("metadata.uid") != account.textAt("metadata.uid") {
		t.Errorf("a token of %s for %s", a.textAt("metadata.uid"), account.textAt("metadata.uid"))
	}
	c.mustRefuse(t, post(path, withValue(ask, "spec.expirationSeconds", 60)), 422, "Invalid",
		"may not specify a duration less than 10 minutes")
	c.mustRefuse(
		t,
		post(path, withValue(ask, "spec.expirationSeconds", 0)),
		422,
		"Invalid",
		`TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 0: may not specify a duration less than 10 minutes`,
	)
	c.mustRefuse(t, post(path, withValue(ask, "metadata.name", "other")), 422, "Invalid",
		"metadata.name: Invalid value: \"other\": must match the service account name if specified")
	c.mustRefuse(t, post(path, withValue(ask, "metadata.namespace", "other")), 400, "BadRequest",
		"the namespace of the provided object does not match the namespace sent on the request")
	c.mustRefuse(t, post(path, withValue(ask, "metadata.uid", "other")), 409, "Conflict",
		"the UID in the token request (other) does not match the UID of the service account")
	c.mustRefuse(t, post("/api/v1/namespaces/token/serviceaccounts/missing/token", ask), 404, "NotFound",
		`serviceaccounts "missing" not found`)
	review := c.mustAnswer(t, 201, post("/apis/authentication.k8s.io/v1/tokenreviews",
		object{"spec": object{"token": a.textAt("status.token"), "audiences": []any{"there"}}}))
	if review.valueAt("status.authenticated") != true ||
		review.textAt("status.user.username") != "system:serviceaccount:token:default" {
		t.Errorf("reviewed: %v", review.valueAt("status"))
	}
}

// Reviews return the client's identity and rights.
// Proves S11.
func TestReviewsAreAnswered(t *testing.T) {
	c := sharedClient(t)
	me := c.mustAnswer(t, 201, post("/apis/authentication.k8s.io/v1/selfsubjectreviews", object{}))
	if me.textAt("kind") != "SelfSubjectReview" || me.textAt("status.userInfo.username") == "" {
		t.Errorf("me: %s", me.raw)
	}
	access := object{"resourceAttributes": object{"verb": "get", "resource": "pods", "namespace": "default"}}
	mine := c.mustAnswer(t, 201, post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", object{"spec": access}))
	if mine.valueAt("status.allowed") != true {
		t.Errorf("may I: %v", mine.valueAt("status"))
	}
	theirs := c.mustAnswer(t, 201, post("/apis/authorization.k8s.io/v1/subjectaccessreviews",
		object{"spec": mergeObjects(access, object{"user": "nobody"})}))
	if theirs.valueAt("status.allowed") != false {
		t.Errorf("an unknown user is allowed: %v", theirs.valueAt("status"))
	}
	c.mustAnswer(t, 201, post("/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
		object{"metadata": object{"namespace": "default"}, "spec": mergeObjects(access, object{"user": "nobody"})}))
	rules := c.mustAnswer(t, 201, post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		object{"spec": object{"namespace": "default"}}))
	if list, _ := rules.valueAt("status.resourceRules").([]any); len(list) == 0 {
		t.Errorf("rules: %v", rules.valueAt("status"))
	}
	if cs := c.mustAnswer(t, 200, get("/api/v1/componentstatuses")); len(cs.itemList()) == 0 ||
		cs.textAt("kind") != "ComponentStatusList" {
		t.Errorf("components: %s", cs.raw)
	}
}

// A certificate is approved through the subresource, once, and the decision cannot be changed.
// Proves S11.
func TestApprovalIsASeparateSubresource(t *testing.T) {
	c := sharedClient(t)
	for _, s := range readSamples(t) {
		if s.Kind != "CertificateSigningRequest" {
			continue
		}
		o, name := s.newUnique("")
		o = c.mustAnswer(t, 201, post(s.allPath(), o)).obj
		if valueAt(o, "spec.username") == nil {
			t.Errorf("the request lacks its user: %v", o["spec"])
		}
		path := s.allPath() + "/" + name
		approved := withValue(o, "status.conditions",
			[]any{object{"type": "Approved", "status": "True", "reason": "R", "message": "M"}})
		c.mustAnswer(t, 200, put(path, approved))
		if a := c.mustAnswer(t, 200, get("%s", path)); a.valueAt("status.conditions") != nil {
			t.Errorf("a plain write approved: %v", a.valueAt("status"))
		}
		a := c.mustAnswer(t, 200, put(path+"/approval", withValue(approved, "metadata.resourceVersion", "")))
		if a.textAt("status.conditions.0.type") != "Approved" || a.textAt("status.conditions.0.lastUpdateTime") == "" {
			t.Errorf("approved: %v", a.valueAt("status"))
		}
	}
}
