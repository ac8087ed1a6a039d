package dashboard

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// maxCertificates limits the answer of /api/certificates. Those that expire first are in it.
const maxCertificates = 1000

// certificateDescription is a certificate in the answer of /api/certificates.
type certificateDescription struct {
	Name     string    `json:"name"`
	Subject  string    `json:"subject"`
	Expires  time.Time `json:"expires"`
	DaysLeft int       `json:"daysLeft"` // negative if it has expired
}

// certificateList is the answer of /api/certificates.
type certificateList struct {
	Certificates []certificateDescription `json:"certificates"`
	Unseen       []string                 `json:"unseen"`
}

// certificateReader collects certificates.
type certificateReader struct {
	visitor *visitor
	now     time.Time
	list    certificateList
}

// listCertificates answers /api/certificates: the certificates that the visitor's rights show, those that expire first
// in front.
func (d *Dashboard) listCertificates(ctx context.Context, s *session) (*certificateList, error) {
	r := &certificateReader{visitor: s.visitor, now: d.config.Now(),
		list: certificateList{Certificates: []certificateDescription{}, Unseen: []string{}}}
	for _, part := range []struct {
		name string
		read func(context.Context) error
	}{
		{"the API server's certificate", r.readServer},
		{"the kubeconfig's certificate", r.readClient},
		{"kubelets' serving certificates (certificatesigningrequests)", r.readKubelets},
		{"secrets of type kubernetes.io/tls", r.readSecrets},
		{"validatingwebhookconfigurations", r.readWebhooks("validatingwebhookconfigurations")},
		{"mutatingwebhookconfigurations", r.readWebhooks("mutatingwebhookconfigurations")},
		{"apiservices", r.readAPIServices},
	} {
		if err := part.read(ctx); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r.list.Unseen = append(r.list.Unseen, part.name+": "+unseenReason(err))
		}
	}
	slices.SortFunc(r.list.Certificates, func(a, b certificateDescription) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Name, b.Name))
	})
	if n := len(r.list.Certificates) - maxCertificates; n > 0 {
		r.list.Certificates = r.list.Certificates[:maxCertificates]
		r.list.Unseen = append(r.list.Unseen, fmt.Sprintf("%d more certificates, which expire later", n))
	}
	return &r.list, nil
}

func (r *certificateReader) add(name string, c *x509.Certificate) {
	left := c.NotAfter.Sub(r.now)
	days := int(left.Hours() / 24)
	if left < 0 {
		days--
	}
	r.list.Certificates = append(r.list.Certificates, certificateDescription{Name: name, Subject: c.Subject.String(),
		Expires: c.NotAfter.UTC(), DaysLeft: days})
}

// addPEM adds the first certificate of a text, or all of them. It returns false if there is none.
func (r *certificateReader) addPEM(name string, text []byte, all bool) bool {
	found := false
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return found
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			continue
		}
		r.add(name, c)
		if found = true; !all {
			return true
		}
	}
}

// readServer reads the certificate of the API server from a TLS handshake.
func (r *certificateReader) readServer(ctx context.Context) error {
	v := r.visitor
	if v.server.Scheme != "https" {
		return nil
	}
	config, err := rest.TLSConfigFor(v.config)
	if err != nil {
		return err
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.Certificates, config.GetClientCertificate = nil, nil
	if config.ServerName == "" {
		config.ServerName = v.server.Hostname()
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	address := net.JoinHostPort(v.server.Hostname(), cmp.Or(v.server.Port(), "443"))
	dial := v.config.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	plain, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer plain.Close()
	conn := tls.Client(plain, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	if shown := conn.ConnectionState().PeerCertificates; len(shown) > 0 {
		r.add("API server "+address, shown[0])
	}
	return nil
}

// readClient reads the client certificate of a kubeconfig.
func (r *certificateReader) readClient(context.Context) error {
	config := rest.CopyConfig(r.visitor.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	r.addPEM("client certificate of the kubeconfig", config.CertData, false)
	return nil
}

// readKubelets reads the serving certificates that kubelets got for requests. The latest of each node counts.
func (r *certificateReader) readKubelets(ctx context.Context) error {
	latest := map[string]*certificatesv1.CertificateSigningRequest{}
	opts := metav1.ListOptions{FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName}
	err := eachPage(ctx, opts, func(ctx context.Context, opts metav1.ListOptions) (string, error) {
		list, err := r.visitor.typed.CertificatesV1().CertificateSigningRequests().List(ctx, opts)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			q := &list.Items[i]
			before := latest[q.Spec.Username]
			if len(q.Status.Certificate) > 0 &&
				(before == nil || before.CreationTimestamp.Before(&q.CreationTimestamp)) {
				latest[q.Spec.Username] = q
			}
		}
		return list.Continue, nil
	})
	if err != nil {
		return err
	}
	for _, user := range slices.Sorted(maps.Keys(latest)) {
		r.addPEM("kubelet of "+strings.TrimPrefix(user, "system:node:"), latest[user].Status.Certificate, false)
	}
	return nil
}

func (r *certificateReader) readSecrets(ctx context.Context) error {
	opts := metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeTLS)}
	return eachPage(ctx, opts, func(ctx context.Context, opts metav1.ListOptions) (string, error) {
		list, err := r.visitor.typed.CoreV1().Secrets("").List(ctx, opts)
		if err != nil {
			return "", err
		}
		for _, s := range list.Items {
			r.addPEM("Secret "+s.Namespace+"/"+s.Name, s.Data[corev1.TLSCertKey], false)
		}
		return list.Continue, nil
	})
}

// eachObject calls a function for each object of a kind.
func (r *certificateReader) eachObject(ctx context.Context, kind schema.GroupVersionResource,
	call func(*unstructured.Unstructured)) error {
	read := func(ctx context.Context, opts metav1.ListOptions) (string, error) {
		list, err := r.visitor.dynamic.Resource(kind).List(ctx, opts)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			call(&list.Items[i])
		}
		return list.GetContinue(), nil
	}
	return eachPage(ctx, metav1.ListOptions{}, read)
}

// addBundle adds the certificates of a CA bundle in base64.
func (r *certificateReader) addBundle(name string, text string) {
	if bundle, err := base64.StdEncoding.DecodeString(text); err == nil {
		r.addPEM(name, bundle, true)
	}
}

// readWebhooks returns a function that reads the CA bundles of a kind of webhook configurations.
func (r *certificateReader) readWebhooks(resource string) func(context.Context) error {
	kind := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
	return func(ctx context.Context) error {
		return r.eachObject(ctx, kind, func(o *unstructured.Unstructured) {
			hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks") // absent means none
			for _, hook := range hooks {
				fields, ok := hook.(map[string]any)
				if !ok {
					continue
				}
				name, _, _ := unstructured.NestedString(fields, "name")
				bundle, _, _ := unstructured.NestedString(fields, "clientConfig", "caBundle")
				r.addBundle("CA of webhook "+name+" of "+o.GetName(), bundle)
			}
		})
	}
}

func (r *certificateReader) readAPIServices(ctx context.Context) error {
	kind := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	return r.eachObject(ctx, kind, func(o *unstructured.Unstructured) {
		bundle, _, _ := unstructured.NestedString(o.Object, "spec", "caBundle") // absent means none
		r.addBundle("CA of APIService "+o.GetName(), bundle)
	})
}
