package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// serviceName is the name of the service in front of the operator.
const serviceName = "operator"

// installDefinition creates the definition of Sites, and their webhooks.
func installDefinition(ctx context.Context, c client.Client, namespace string, at url.URL, ca []byte) error {
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "sites.operator.example.com"},
	}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, definition, func() error {
		definition.Spec = definitionSpec(webhookConversion(namespace, at, ca))
		return nil
	}); err != nil {
		return fmt.Errorf("install the definition: %w", err)
	}
	hook := func(path string) admissionregistrationv1.WebhookClientConfig {
		if at.Host != "" {
			return admissionregistrationv1.WebhookClientConfig{URL: new(at.String() + path), CABundle: ca}
		}
		return admissionregistrationv1.WebhookClientConfig{
			CABundle: ca,
			Service:  &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: serviceName, Path: &path},
		}
	}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{
			admissionregistrationv1.Create,
			admissionregistrationv1.Update,
		},
		Rule: admissionregistrationv1.Rule{
			APIGroups:   []string{"operator.example.com"},
			APIVersions: []string{"v2"},
			Resources:   []string{"sites"},
		},
	}}
	none := new(admissionregistrationv1.SideEffectClassNone)
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "operator"}}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, mutating, func() error {
		mutating.Webhooks = []admissionregistrationv1.MutatingWebhook{{
			Name: "default.operator.example.com", SideEffects: none, AdmissionReviewVersions: []string{"v1"},
			Rules:        rules,
			ClientConfig: hook("/mutate-operator-example-com-v2-site"),
		}}
		return nil
	}); err != nil {
		return fmt.Errorf("install the mutating webhook: %w", err)
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"},
	}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, validating, func() error {
		validating.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
			Name: "judge.operator.example.com", SideEffects: none, AdmissionReviewVersions: []string{"v1"},
			Rules:        rules,
			ClientConfig: hook("/validate-operator-example-com-v2-site"),
		}}
		return nil
	}); err != nil {
		return fmt.Errorf("install the validating webhook: %w", err)
	}
	err := wait.PollUntilContextTimeout(
		ctx,
		50*time.Millisecond,
		time.Minute,
		true,
		func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKeyFromObject(definition), definition)
			return err == nil && apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established), err
		},
	)
	if err != nil {
		return fmt.Errorf("wait for the definition to be established: %w", err)
	}
	return nil
}

func webhookConversion(namespace string, at url.URL, ca []byte) *apiextensionsv1.CustomResourceConversion {
	client := &apiextensionsv1.WebhookClientConfig{CABundle: ca}
	if at.Host != "" {
		client.URL = new(at.String() + "/convert")
	} else {
		client.Service = &apiextensionsv1.ServiceReference{Namespace: namespace, Name: serviceName,
			Path: new("/convert")}
	}
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: client, ConversionReviewVersions: []string{"v1"}},
	}
}

func definitionSpec(conversion *apiextensionsv1.CustomResourceConversion) apiextensionsv1.CustomResourceDefinitionSpec {
	text, number := apiextensionsv1.JSONSchemaProps{
		Type: "string",
	}, apiextensionsv1.JSONSchemaProps{
		Type:   "integer",
		Format: "int32",
	}
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	version := func(name string, stored bool,
		spec map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.CustomResourceDefinitionVersion {
		whole := object(
			map[string]apiextensionsv1.JSONSchemaProps{
				"spec":   object(spec),
				"status": object(map[string]apiextensionsv1.JSONSchemaProps{"ready": number}),
			},
		)
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: stored,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &whole},
			Subresources: &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
			},
			AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
				{Name: "Ready", Type: "integer", JSONPath: ".status.ready"},
			},
		}
	}
	return apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "operator.example.com", Scope: apiextensionsv1.NamespaceScoped, Conversion: conversion,
		Names: apiextensionsv1.CustomResourceDefinitionNames{
			Plural:   "sites",
			Singular: "site",
			Kind:     "Site",
			ListKind: "SiteList",
		},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			version("v1", true,
				map[string]apiextensionsv1.JSONSchemaProps{"image": text, "replicas": number, "message": text}),
			version("v2", false, map[string]apiextensionsv1.JSONSchemaProps{
				"container": object(
					map[string]apiextensionsv1.JSONSchemaProps{"image": text},
				), "replicas": number, "text": text,
			}),
		},
	}
}
