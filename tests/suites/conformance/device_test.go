package conformance

import "testing"

// Administrative access to devices is only allowed for claims in namespaces with a label for it. Allocations and
// reported devices are validated.
// Proves S12.
func TestDeviceAdminAccessNeedsALabelledNamespace(t *testing.T) {
	c := sharedClient(t)
	const ns, label = "device-admins", "resource.kubernetes.io/admin-access"
	c.createNamespace(t, ns)
	const claims = "/apis/resource.k8s.io/v1/namespaces/" + ns + "/resourceclaims"
	claim := func(name string, admin bool) object {
		return object{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": object{"name": name},
			"spec": object{
				"devices": object{
					"requests": []any{
						object{"name": "r", "exactly": object{"deviceClassName": "c", "adminAccess": admin}},
					},
				},
			}}
	}
	result := func(more object) object {
		return mergeObjects(object{"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"}, more)
	}
	allocated := func(o object, results ...any) object {
		return withValue(o, "status.allocation", object{"devices": object{"results": results}})
	}
	const refusal = "admin access to devices requires the `" + label + ": true` label on the containing namespace"
	c.mustRefuse(t, post(claims, claim("a", true)), 422, "Invalid", refusal)
	plain := c.mustAnswer(t, 201, post(claims, claim("plain", false))).obj
	c.mustRefuse(t, put(claims+"/plain/status", allocated(plain, result(object{"adminAccess": true}))), 422, "Invalid",
		refusal)
	// Admission reads the server's cache. A read returns after the cache has reached the write.
	labelled := func(value any) {
		c.mustAnswer(t, 200, patch("/api/v1/namespaces/"+ns, "merge-patch+json",
			object{"metadata": object{"labels": object{label: value}}}))
		c.mustAnswer(t, 200, get("/api/v1/namespaces/"+ns))
	}
	for _, value := range []string{"True", "yes", ""} {
		labelled(value)
		c.mustRefuse(t, post(claims, claim("a", true)), 422, "Invalid", refusal)
	}
	labelled("true")
	o := c.mustAnswer(t, 201, post(claims, claim("a", true))).obj
	o = c.mustAnswer(t, 200, put(claims+"/a/status", allocated(o, result(object{"adminAccess": true})))).obj

	// Granted access remains when the label is removed.
	labelled(nil)
	device := object{"driver": "gpu.example.com", "pool": "p", "device": "d", "conditions": []any{}}
	c.mustAnswer(t, 200, put(claims+"/a/status", withValue(o, "status.devices", []any{device})))
	c.mustRefuse(t, post(claims, claim("b", true)), 422, "Invalid", refusal)

	for name, r := range map[string]struct {
		results []any
		message string
	}{
		"a share of another form": {[]any{result(object{"shareID": "ONE"})}, "must be a lowercase UUID in 8-4-4-4-12 " +
			"format"},
		"too many conditions": {[]any{result(object{"bindingConditions": []any{"a", "b", "c", "d", "e"}})},
			"must have at most 4 items"},
		"a condition twice":   {[]any{result(object{"bindingFailureConditions": []any{"a", "a"}})}, "Duplicate value"},
		"capacity of no name": {[]any{result(object{"consumedCapacity": object{"a-b": "1"}})}, "consumedCapacity[a-b]"},
		"less than nothing": {[]any{result(object{"consumedCapacity": object{"a": "-1"}})}, "must be greater than " +
			"or equal to zero"},
		"of no request": {[]any{result(object{"request": "x"})}, "must be the name of a request in the claim"},
	} {
		t.Run(name, func(t *testing.T) {
			c.mustRefuse(t, put(claims+"/plain/status", allocated(plain, r.results...)), 422, "Invalid", r.message)
		})
	}
	const share = "12345678-1234-1234-1234-123456789abc"
	device["shareID"] = share
	reports := func(devices ...any) object {
		return withValue(withValue(allocated(plain, result(object{"shareID": share})), "status.devices", devices),
			"metadata.resourceVersion", "")
	}
	c.mustAnswer(t, 200, put(claims+"/plain/status", reports(device)))
	c.mustRefuse(t, put(claims+"/plain/status", reports(device, device)), 422, "Invalid",
		"status.devices[1]: Duplicate value")
	c.mustRefuse(t, put(claims+"/plain/status", reports(mergeObjects(device, object{"shareID": "1"}))), 422, "Invalid",
		"must be a lowercase UUID")
	c.mustRefuse(t, put(claims+"/plain/status", reports(mergeObjects(device,
		object{"networkData": object{"ips": []any{"10.0.0.1/24", "10.0.0.1/24"}}}))), 422, "Invalid",
		"ips[1]: Duplicate value")
}
