package image

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"clusterctl/daemons/config"
)

// credentialOf returns the credential of a secret.
func credentialOf(secret, uid, password string) *Credential {
	c := Credential{Username: "me", Password: password}
	c.Secret = SecretRef{UID: uid, Namespace: "shop", Name: secret, Hash: c.hash()}
	return &c
}

// canUse reports whether a pod with the given credentials may use an image.
func canUse(t *testing.T, r *Records, image, ref string, with ...*Credential) bool {
	t.Helper()
	ok, err := r.CanUse(image, ref, func() ([]Credential, error) {
		var list []Credential
		for _, c := range with {
			list = append(list, *c)
		}
		return list, nil
	})
	if err != nil {
		t.Error(err)
	}
	return ok
}

func recordPull(t *testing.T, r *Records, image, ref string, with *Credential) {
	t.Helper()
	if err := errors.Join(r.Begin(image), r.End(image, ref, with)); err != nil {
		t.Fatal(err)
	}
}

const webImage, webImageID = "registry.example/team/web:1", "sha256:web"

func TestAPodUsesAnImageThatItCouldPull(t *testing.T) {
	secret := credentialOf("pull", "1", "secret")
	for _, row := range []struct {
		name   string
		pulled *Credential // credential of the earlier pull
		with   []*Credential
		want   bool
	}{
		{"without credentials, pulled with one", secret, nil, false},
		{"with the same secret", secret, []*Credential{secret}, true},
		{"with another secret and the same credential", secret, []*Credential{credentialOf("copy", "2", "secret")},
			true},
		{"with the same secret and another credential", secret, []*Credential{credentialOf("pull", "1", "rotated")},
			true},
		{"with a secret of the same name, made anew", secret, []*Credential{credentialOf("pull", "3", "guessed")},
			false},
		{"with another", secret, []*Credential{credentialOf("other", "2", "guessed")}, false},
		{"with another and the same", secret, []*Credential{credentialOf("other", "2", "guessed"), secret}, true},
		{"without credentials, pulled without", nil, nil, true},
		{"with some, pulled without", nil, []*Credential{secret}, true},
	} {
		r := &Records{Store: &Memory{}}
		recordPull(t, r, webImage, webImageID, row.pulled)
		for _, again := range []string{"at first", "again"} {
			if got := canUse(t, r, webImage, webImageID, row.with...); got != row.want {
				t.Errorf("%s, %s: may use the image: %t", row.name, again, got)
			}
		}
		if canUse(t, r, "registry.example/other:1", webImageID, row.with...) {
			t.Errorf("%s: may use the image under a name under which it was not pulled", row.name)
		}
	}
}

func TestAVerifiedCredentialIsRecorded(t *testing.T) {
	r := &Records{Store: &Memory{}}
	recordPull(t, r, webImage, webImageID, credentialOf("pull", "1", "old"))
	if !canUse(t, r, webImage, webImageID, credentialOf("pull", "1", "new")) ||
		!canUse(t, r, webImage, webImageID, credentialOf("copy", "2", "new")) {
		t.Error("the rotated credential is not known in another secret")
	}
	if canUse(t, r, webImage, webImageID, credentialOf("other", "3", "old")) {
		t.Error("the credential of before is known in another secret")
	}
}

func TestPoliciesSelectTheImagesToVerify(t *testing.T) {
	allowed := []string{"docker.io/library/busybox", "registry.example/team/*"}
	for _, row := range []struct {
		policy, image   string
		pulled, without bool // whether the kubelet has pulled it, and whether a pod without credentials may use it
	}{
		{config.VerifyNone, "busybox:1", true, true}, {config.VerifyNone, "busybox:1", false, true},
		{config.VerifyPulled, "busybox:1", true, false}, {config.VerifyPulled, "busybox:1", false, true},
		{"", "busybox:1", true, false}, {"", "busybox:1", false, true},
		{config.VerifyAllButAllowed, "busybox:1", true, false}, {config.VerifyAllButAllowed, "busybox:1", false, true},
		{config.VerifyAllButAllowed, webImage, false, true},
		{config.VerifyAllButAllowed, "registry.example/team/a/b@sha256:" + strings.Repeat("0", 64), false, true},
		{config.VerifyAllButAllowed, "registry.example/teams/web", false, false},
		{config.VerifyAllButAllowed, "busybox2", false, false},
		{config.VerifyAllButAllowed, "evil.example/registry.example/team/web", false, false},
		{config.VerifyAll, "busybox:1", true, false}, {config.VerifyAll, "busybox:1", false, false},
	} {
		r := &Records{Policy: Policy{row.policy, allowed}, Store: &Memory{}}
		if row.pulled {
			recordPull(t, r, row.image, "id", credentialOf("pull", "1", "secret"))
		}
		if got := canUse(t, r, row.image, "id"); got != row.without {
			t.Errorf("%s, %s, pulled %t: may be used without credentials: %t", row.policy, row.image, row.pulled, got)
		}
	}
}

// If a kubelet is killed during a pull, it is unknown which pods may use the image.
func TestAnInterruptedPullDoesNotOpenTheImageToAllPods(t *testing.T) {
	store := Directory(t.TempDir())
	for _, image := range []string{webImage, "gone:1"} {
		if err := (&Records{Store: store}).Begin(image); err != nil {
			t.Fatal(err)
		}
	}
	r := &Records{Store: store}
	if canUse(t, r, webImage, webImageID) {
		t.Error("the image may be used before what was interrupted is taken in")
	}
	if err := r.Recover(func(image string) (string, error) {
		return map[string]string{webImage: webImageID}[image], nil
	}); err != nil {
		t.Fatal(err)
	}
	if left, err := store.List(pullingFolder); err != nil || len(left) > 0 {
		t.Errorf("pulls are still under way: %v, %v", left, err)
	}
	if canUse(t, r, webImage, webImageID) || canUse(t, r, webImage, webImageID, credentialOf("pull", "1", "secret")) {
		t.Error("the image may be used without being pulled again")
	}
	recordPull(t, r, webImage, webImageID, credentialOf("pull", "1", "secret"))
	if !canUse(t, r, webImage, webImageID, credentialOf("pull", "1", "secret")) {
		t.Error("the image may not be used after it was pulled again")
	}
}

// An unreadable record does not make an image usable for all pods.
func TestABrokenRecordAllowsNoPod(t *testing.T) {
	dir := t.TempDir()
	r := &Records{Store: Directory(dir)}
	recordPull(t, r, webImage, webImageID, nil)
	if err := os.WriteFile(filepath.Join(dir, pulledFolder, fileName(webImageID)), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := r.CanUse(webImage, webImageID, nil); ok || err == nil {
		t.Errorf("usable is %t, %v", ok, err)
	}
	if err := r.Prune(nil, func(string) (bool, error) { return false, nil }); err == nil {
		t.Error("a record that cannot be read was pruned")
	}
	recordPull(t, r, webImage, webImageID, nil)
	if !canUse(t, r, webImage, webImageID) {
		t.Error("the record was not replaced by the next pull")
	}
}

func TestRecordsAreRemovedWithTheirImages(t *testing.T) {
	for _, store := range []Store{Directory(t.TempDir()), &Memory{}} {
		r := &Records{Store: store}
		for _, ref := range []string{"listed", "there", "gone", "unknown"} {
			recordPull(t, r, "a:1", ref, nil)
		}
		err := r.Prune(map[string]bool{"listed": true}, func(ref string) (bool, error) {
			if ref == "unknown" {
				return false, errors.New("no answer")
			}
			return ref == "there", nil
		})
		if err == nil || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("%T: %v", store, err)
		}
		left := map[string]bool{}
		for _, ref := range []string{"listed", "there", "gone", "unknown"} {
			got, err := r.read(ref)
			if err != nil {
				t.Fatal(err)
			}
			left[ref] = got != nil
		}
		want := map[string]bool{"listed": true, "there": true, "gone": false, "unknown": true}
		if !reflect.DeepEqual(left, want) {
			t.Errorf("%T: left are %v", store, left)
		}
	}
}

// Records have the format of kubelet.config.k8s.io, which other kubelets can read.
func TestRecordsHaveThePublishedFormat(t *testing.T) {
	store := &Memory{}
	r := &Records{Store: store}
	recordPull(t, r, webImage, webImageID, credentialOf("pull", "1", "secret"))
	data, err := store.Read(pulledFolder, fileName(webImageID))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "lastUpdatedTime")
	want := map[string]any{"kind": "ImagePulledRecord", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"imageRef": webImageID,
		"credentialMapping": map[string]any{"registry.example/team/web": map[string]any{"kubernetesSecrets": []any{
			map[string]any{"uid": "1", "namespace": "shop", "name": "pull",
				"credentialHash": credentialOf("pull", "1", "secret").Secret.Hash}}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the record is %v, want %v", got, want)
	}
}

func TestSecretsOfARecordAreLimited(t *testing.T) {
	r := &Records{Store: &Memory{}}
	for i := range 3 * maxSecrets {
		uid := strings.Repeat("x", i)
		recordPull(t, r, webImage, webImageID, credentialOf("pull", uid, uid))
	}
	got, err := r.read(webImageID)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Credentials[Untagged(webImage)].Secrets); n != maxSecrets {
		t.Errorf("the record has %d secrets", n)
	}
}
