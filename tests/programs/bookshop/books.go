package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const group = "bookshop.example.com"

// apiDocuments are the discovery and OpenAPI documents of the server, by path.
var apiDocuments = map[string]string{
	"/apis/" + group + "/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"bookshop.example.com/v1","resources":[{"name":"books","singularName":"book","namespaced":true,"kind":"Book","verbs":["get","list"],"shortNames":["bk"]}]}`,
	"/openapi/v2": `{"swagger":"2.0","info":{"title":"bookshop","version":"v1"},"paths":{"/apis/bookshop.example.com/v1/namespaces/{namespace}/books":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/com.example.bookshop.v1.Book"}}}}}},
"definitions":{"com.example.bookshop.v1.Book":` + bookSchema + `}}`,
	"/openapi/v3": `{"paths":{"apis/bookshop.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/bookshop.example.com/v1?hash=1"}}}`,
	"/openapi/v3/apis/" + group + "/v1": `{"openapi":"3.0.0","info":{"title":"bookshop","version":"v1"},"paths":{"/apis/bookshop.example.com/v1/namespaces/{namespace}/books":{"get":{"responses":{"200":{"description":"OK"}},"x-kubernetes-action":"list",
"x-kubernetes-group-version-kind":{"group":"bookshop.example.com","version":"v1","kind":"Book"}}}},"components":{"schemas":{"com.example.bookshop.v1.Book":` + bookSchema + `}}}`,
}

const bookSchema = `{"description":"A Book tells who reads it.","type":"object","properties":{"reader":{"type":"string","description":"Who asked for the book."}},"x-kubernetes-group-version-kind":[{"group":"bookshop.example.com","version":"v1","kind":"Book"}]}`

// parseBookPath parses the path of a book, or of a namespace's books.
func parseBookPath(path string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/apis/"+group+"/v1/namespaces/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 2 || len(parts) > 3 || parts[1] != "books" {
		return "", "", false
	}
	if len(parts) == 3 {
		name = parts[2]
	}
	return parts[0], name, true
}

// bookObject returns a book, or the list of all books, which has one book.
func bookObject(namespace, name, reader string) map[string]any {
	book := func(name string) map[string]any {
		return map[string]any{"apiVersion": group + "/v1", "kind": "Book", "reader": reader,
			"metadata": map[string]any{
				"name":              name,
				"namespace":         namespace,
				"creationTimestamp": "2026-01-01T00:00:00Z",
			}}
	}
	if name != "" {
		return book(name)
	}
	return map[string]any{
		"apiVersion": group + "/v1",
		"kind":       "BookList",
		"metadata":   map[string]any{"resourceVersion": "1"},
		"items":      []any{book("dune")},
	}
}

// register registers the group version with this server as its backend.
func register(ctx context.Context, c dynamic.Interface, namespace string, ca []byte) error {
	services := c.Resource(
		schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
	)
	_, err := services.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1." + group},
		"spec": map[string]any{
			"group":                group,
			"version":              "v1",
			"groupPriorityMinimum": int64(1000),
			"versionPriority":      int64(10),
			"caBundle":             base64.StdEncoding.EncodeToString(ca),
			"service":              map[string]any{"namespace": namespace, "name": "bookshop"},
		},
	}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register the bookshop: %w", err)
	}
	return nil
}

// newCertificate returns a new self-signed certificate, and its PEM.
func newCertificate(namespace string) (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(
			1,
		), Subject: pkix.Name{CommonName: "bookshop"}, DNSNames: []string{"bookshop." + namespace + ".svc"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{
		Certificate: [][]byte{der},
		PrivateKey:  key,
	}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
