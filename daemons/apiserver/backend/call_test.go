package backend

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
)

// TestPathsOfWebhooksAreClean checks the path of the URL at which a webhook is called.
func TestPathsOfWebhooksAreClean(t *testing.T) {
	for given, want := range map[string]string{
		"": "/", "/": "/", "/a": "/a", "//failing": "/failing", "/a//b/": "/a/b", "/a/../b": "/b", "/a/./b": "/a/b",
	} {
		w, err := NewWebhook(admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://example.com" + given)})
		if err != nil || w.URL.EscapedPath() != want {
			t.Errorf("the URL's path %q becomes %q, want %q (%v)", given, w.URL.EscapedPath(), want, err)
		}
		w, err = NewWebhook(admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: "a", Name: "b", Path: &given}})
		if err != nil || w.URL.EscapedPath() != want {
			t.Errorf("the service's path %q becomes %q, want %q (%v)", given, w.URL.EscapedPath(), want, err)
		}
	}
}
