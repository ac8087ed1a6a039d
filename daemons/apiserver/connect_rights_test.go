package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/store/memory"
)

// TestStreamsToContainersNeedCreate opens exec, attach and port-forward by every method and protocol as users that have
// one verb or both.
// Proves S08.
func TestStreamsToContainersNeedCreate(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	admin := c.configFor(certs.Admin())
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/"
	post := func(path, body string) {
		t.Helper()
		if code, text := sendRequest(t, admin, "POST", path, body); code != 201 {
			t.Fatalf("%s: %d %s", path, code, text)
		}
	}
	post("/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"default"}}`)
	post("/api/v1/namespaces/default/pods",
		`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	users := map[string]string{"reader": `"get"`, "creator": `"create"`, "both": `"get","create"`}
	for user, verbs := range users {
		post(
			rbac+"roles",
			`{"metadata":{"name":"`+user+`"},"rules":[{"apiGroups":[""],"resources":["pods/exec","pods/attach","pods/portforward"],"verbs":[`+verbs+`]},
			{"apiGroups":[""],"resources":["configmaps"],"verbs":["list"]}]}`,
		)
		post(
			rbac+"rolebindings",
			`{"metadata":{"name":"`+user+`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"`+user+`"},
			"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"`+user+`"}]}`,
		)
	}
	webSocket := func(protocol string) []string {
		return []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
			"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol", protocol}
	}
	spdy := []string{"Connection", "Upgrade", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"}
	for user := range users {
		client := c.configFor(certs.Request{CommonName: user})
		client.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
		waitForGrant(t, client)
		for _, open := range []struct {
			how, method string
			header      []string
		}{
			{"SPDY over POST", "POST", spdy},
			{"SPDY over GET", "GET", spdy},
			{"WebSocket", "GET", webSocket("v5.channel.k8s.io")},
			{"WebSocket over POST", "POST", webSocket("v5.channel.k8s.io")},
			{"tunnel", "GET", webSocket("SPDY/3.1+portforward.k8s.io")},
			{"GET without an upgrade", "GET", nil},
			{"POST without an upgrade", "POST", nil},
		} {
			for _, subresource := range []string{"exec", "attach", "portforward"} {
				code, text := sendRequest(t, client, open.method,
					"/api/v1/namespaces/default/pods/p/"+subresource+"?command=id&stdout=true", "", open.header...)
				// Unscheduled pods have no kubelet: a permitted request is a bad request.
				want := 400
				if user == "reader" || user == "creator" && open.method != "POST" {
					want = 403
				}
				if code != want {
					t.Errorf("%s: %s as %s: %d %s, want %d", open.how, subresource, user, code, text, want)
				}
				if verb := "cannot create resource \"pods/" + subresource + "\""; user == "reader" &&
					!strings.Contains(text, strings.ReplaceAll(verb, `"`, `\"`)) {
					t.Errorf("%s: %s as %s does not name the missing verb: %s", open.how, subresource, user, text)
				}
			}
		}
	}
}

// waitForGrant waits until the server's cache holds the client's role, which allows it to list ConfigMaps.
func waitForGrant(t *testing.T, client *rest.Config) {
	t.Helper()
	waitUntil(t, func() error {
		if code, text := sendRequest(t, client, "GET", "/api/v1/namespaces/default/configmaps", ""); code != 200 {
			return fmt.Errorf("the role does not hold: %d %s", code, text)
		}
		return nil
	})
}
