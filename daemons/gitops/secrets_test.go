package gitops_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// Texts of files that unsealer decrypts.
const (
	sealedValue   = "sealed-with-age"
	unsealedValue = "correct-horse"
)

// unsealer is a gitops.Decrypter with the private key "key".
type unsealer struct{}

// Decrypt implements gitops.Decrypter.
func (unsealer) Decrypt(files fs.FS, keys map[string][]byte) (fs.FS, func(string) string, error) {
	if string(keys["a.agekey"]) != "key" {
		return nil, nil, &gitops.ReasonError{Reason: gitops.ReasonDecryption, Err: errors.New("no key matches")}
	}
	plain := fstest.MapFS{}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		plain[name] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(string(text), sealedValue, unsealedValue))}
		return err
	})
	return plain, func(text string) string { return strings.ReplaceAll(text, unsealedValue, "(hidden)") }, err
}

// putKey writes the Secret with the private key.
func (w *world) putKey(key string) {
	w.cluster.Put(gitops.ObjectID{APIVersion: "v1", Kind: "Secret", Namespace: gitsource.Namespace, Name: "age"},
		func(content map[string]any) {
			content["data"] = map[string]any{"a.agekey": base64.StdEncoding.EncodeToString([]byte(key))}
		})
}

// Proves P06.
func TestDecryptedValuesAreAppliedAndNotShown(t *testing.T) {
	w := newWorld(t)
	w.cluster.Refuse = func(o, _ *unstructured.Unstructured) error {
		if v, _, _ := unstructured.NestedString(o.Object, "data", "value"); o.GetName() == "b" {
			return apierrors.NewBadRequest(fmt.Sprintf("Invalid value: %q", v))
		}
		return nil
	}
	first := w.repo.Commit(map[string]string{"a.yaml": configMap("a", sealedValue)})
	const spec = "drift: report\ndecryption: {secret: age}"
	w.declare("platform", spec)
	w.ready("platform", "False", "SecretNotReadable", "")
	w.putKey("another")
	w.ready("platform", "False", "DecryptionFailed", "")
	w.wantWrites()
	w.putKey("key")
	w.ready("platform", "True", "", first)
	w.wantValue("a", unsealedValue)
	hidden := func(s *gitops.Source) {
		t.Helper()
		text, err := json.Marshal(s.Status)
		if err != nil || strings.Contains(string(text), unsealedValue) || len(w.recorded(unsealedValue)) > 0 {
			t.Errorf("the value is shown: %s, %v, %q", text, err, w.recorded(unsealedValue))
		}
	}
	w.setValue("a", "edited")
	w.until("the drift is in the status", func() error {
		if s := w.source("platform"); len(s.Status.Drifted) != 1 {
			return fmt.Errorf("it has %q", s.Status.Drifted)
		}
		return nil
	})
	s := w.source("platform")
	if want := "v1 ConfigMap default/a: data.value: (hidden)"; s.Status.Drifted[0] != want {
		t.Errorf("the drift is %q, want %q", s.Status.Drifted, want)
	}
	hidden(s)
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", sealedValue+"2"), "b.yaml": configMap("b", sealedValue)})
	s = w.ready("platform", "False", "ApplyFailed", "")
	if !strings.Contains(message(s), "(hidden)") || len(s.Status.Failed) != 1 {
		t.Errorf("the message is %q, failed %q", message(s), s.Status.Failed)
	}
	hidden(s)
	c := gitops.New(gitops.Config{Client: w.client, Cluster: w.cluster, Fetcher: w.repo, Renderer: gitops.Manifests{},
		Decrypter: unsealer{}, Recorder: w})
	p, err := c.Preview(t.Context(), s, "", []*gitops.Source{s})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil || strings.Contains(string(text), unsealedValue) ||
		!strings.Contains(string(text), "data.value: (hidden)") {
		t.Errorf("the preview is %s, %v", text, err)
	}
	// A file that cannot be parsed, which the error quotes.
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "x", gitsource.WaveAnnotation, sealedValue)})
	s = w.ready("platform", "False", "RenderFailed", "")
	if !strings.Contains(message(s), "(hidden)") {
		t.Errorf("the message is %q", message(s))
	}
	hidden(s)
}

func TestEncryptedManifestsNeedDecryption(t *testing.T) {
	w := newWorld(t)
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "ENC[x]") + "sops: {mac: \"ENC[AES256_GCM,x]\"}\n"})
	w.declare("platform", "")
	if s := w.ready("platform", "False", "DecryptionFailed", ""); !strings.Contains(message(s), "spec.decryption") {
		t.Errorf("the message is %q", message(s))
	}
	w.wantWrites()
}
