package openapi

import (
	"maps"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file has the messages of OpenAPIv2.proto, by the names of their JSON members.

func documentMessage() *message {
	schema := schemaMessage()
	parameter := parameterEncoder(schema)
	response := responseEncoder(schema)
	requirement := mapEncoder(func(b []byte, v any) []byte { return repeatedField(1, textField)(b, v) })
	return &message{extensions: 16, members: map[string]memberEncoder{
		"swagger": textField(1), "info": messageField(2, infoMessage().encode), "host": textField(3),
		"basePath": textField(4),
		"schemes":  repeatedField(5, textField), "consumes": repeatedField(6, textField),
		"produces":    repeatedField(7, textField),
		"paths":       messageField(8, pathsMessage(schema, requirement).encode),
		"definitions": messageField(9, mapEncoder(schema)), "parameters": messageField(10, mapEncoder(parameter)),
		"responses": messageField(11, mapEncoder(response)), "security": repeatedMessage(12, requirement),
		"securityDefinitions": messageField(13, mapEncoder(encodeSecurity)),
		"tags":                repeatedMessage(14, tagMessage().encode),
		"externalDocs":        messageField(15, externalDocs().encode),
	}}
}

func infoMessage() *message {
	contact := &message{extensions: 4,
		members: map[string]memberEncoder{"name": textField(1), "url": textField(2), "email": textField(3)}}
	license := &message{extensions: 3, members: map[string]memberEncoder{"name": textField(1), "url": textField(2)}}
	return &message{extensions: 7, members: map[string]memberEncoder{
		"title": textField(1), "version": textField(2), "description": textField(3), "termsOfService": textField(4),
		"contact": messageField(5, contact.encode), "license": messageField(6, license.encode),
	}}
}

func externalDocs() *message {
	return &message{extensions: 3, members: map[string]memberEncoder{"description": textField(1), "url": textField(2)}}
}

func tagMessage() *message {
	return &message{extensions: 4, members: map[string]memberEncoder{
		"name": textField(1), "description": textField(2), "externalDocs": messageField(3, externalDocs().encode),
	}}
}

func pathsMessage(schema, requirement encoder) *message {
	parameters := repeatedMessage(9, parametersItem(schema))
	operation := &message{extensions: 13, members: map[string]memberEncoder{
		"tags": repeatedField(1, textField), "summary": textField(2), "description": textField(3),
		"externalDocs": messageField(4, externalDocs().encode), "operationId": textField(5),
		"produces": repeatedField(6, textField), "consumes": repeatedField(7, textField),
		"parameters": repeatedMessage(8, parametersItem(schema)),
		"responses":  messageField(9, responsesMessage(schema).encode), "schemes": repeatedField(10, textField),
		"deprecated": boolField(11), "security": repeatedMessage(12, requirement),
	}}
	item := &message{extensions: 10, members: map[string]memberEncoder{"$ref": textField(1), "parameters": parameters}}
	for i, method := range []string{"get", "put", "post", "delete", "options", "head", "patch"} {
		item.members[method] = messageField(protowire.Number(2+i), operation.encode)
	}
	return &message{extensions: 1, otherMembers: namedField(2, item.encode)}
}

func responsesMessage(schema encoder) *message {
	response := responseEncoder(schema)
	value := func(b []byte, v any) []byte {
		if isReference(v) {
			return messageField(2, encodeReference)(b, v)
		}
		return messageField(1, response)(b, v)
	}
	return &message{extensions: 2, otherMembers: namedField(1, value)}
}

func responseEncoder(schema encoder) encoder {
	file := &message{extensions: 10, members: map[string]memberEncoder{
		"format": textField(1), "title": textField(2), "description": textField(3),
		"default":  messageField(4, encodeAny),
		"required": repeatedField(5, textField), "type": textField(6), "readOnly": boolField(7),
		"externalDocs": messageField(8, externalDocs().encode), "example": messageField(9, encodeAny),
	}}
	item := func(b []byte, v any) []byte {
		if o, _ := v.(map[string]any); o["type"] == "file" {
			return messageField(2, file.encode)(b, v)
		}
		return messageField(1, schema)(b, v)
	}
	header := &message{extensions: 19, members: primitive(1)}
	header.members["description"] = textField(18)
	return (&message{extensions: 5, members: map[string]memberEncoder{
		"description": textField(1), "schema": messageField(2, item),
		"headers":  messageField(3, mapEncoder(header.encode)),
		"examples": messageField(4, mapEncoder(encodeAny)),
	}}).encode
}

func isReference(v any) bool {
	o, _ := v.(map[string]any)
	_, ok := o["$ref"].(string)
	return ok
}

func encodeReference(b []byte, v any) []byte {
	return (&message{members: map[string]memberEncoder{"$ref": textField(1), "description": textField(2)}}).encode(b, v)
}

// parametersItem encodes a parameter or a reference to one.
func parametersItem(schema encoder) encoder {
	parameter := parameterEncoder(schema)
	return func(b []byte, v any) []byte {
		if isReference(v) {
			return messageField(2, encodeReference)(b, v)
		}
		return messageField(1, parameter)(b, v)
	}
}

func parameterEncoder(schema encoder) encoder {
	body := &message{extensions: 6, members: map[string]memberEncoder{
		"description": textField(1), "name": textField(2), "in": textField(3), "required": boolField(4),
		"schema": messageField(5, schema),
	}}
	// Other parameters differ in one member, which changes the numbers of all members after it.
	plain := func(emptyValue bool) encoder {
		first := protowire.Number(5)
		if emptyValue {
			first = 6
		}
		m := &message{extensions: first + 17, members: primitive(first)}
		maps.Copy(
			m.members,
			map[string]memberEncoder{"required": boolField(1), "in": textField(2), "description": textField(3),
				"name": textField(4)},
		)
		if emptyValue {
			m.members["allowEmptyValue"] = boolField(5)
		}
		return m.encode
	}
	places := map[any]memberEncoder{
		"header": messageField(1,
			plain(false)), "formData": messageField(2, plain(true)), "query": messageField(3, plain(true)),
		"path": messageField(4, plain(false)),
	}
	return func(b []byte, v any) []byte {
		o, _ := v.(map[string]any)
		place, ok := o["in"].(string)
		if !ok {
			return b
		}
		if place == "body" {
			return messageField(1, body.encode)(b, v)
		}
		if encode := places[place]; encode != nil {
			return messageField(2, encoder(encode))(b, v)
		}
		return b
	}
}

// primitive returns the members of values that are not objects; the first has the number first, the others follow.
func primitive(first protowire.Number) map[string]memberEncoder {
	n := func(i protowire.Number) protowire.Number { return first + i }
	items := func(b []byte, v any) []byte {
		return (&message{extensions: 18, members: primitive(1)}).encode(b, v)
	}
	return map[string]memberEncoder{
		"type": textField(n(0)), "format": textField(n(1)), "items": messageField(n(2), items),
		"collectionFormat": textField(n(3)),
		"default":          messageField(n(4), encodeAny), "maximum": doubleField(n(5)),
		"exclusiveMaximum": boolField(n(6)),
		"minimum":          doubleField(n(7)), "exclusiveMinimum": boolField(n(8)), "maxLength": integerField(n(9)),
		"minLength": integerField(n(10)), "pattern": textField(n(11)), "maxItems": integerField(n(12)),
		"minItems":    integerField(n(13)),
		"uniqueItems": boolField(n(14)), "enum": repeatedMessage(n(15), encodeAny), "multipleOf": doubleField(n(16)),
	}
}

func schemaMessage() encoder {
	m := &message{extensions: 31}
	items := func(b []byte, v any) []byte {
		if _, list := v.([]any); list {
			return repeatedMessage(1, m.encode)(b, v)
		}
		return messageField(1, m.encode)(b, v)
	}
	additional := func(b []byte, v any) []byte {
		if _, ok := v.(bool); ok {
			return boolField(2)(b, v)
		}
		return messageField(1, m.encode)(b, v)
	}
	kind := func(b []byte, v any) []byte {
		if _, list := v.([]any); list {
			return repeatedField(1, textField)(b, v)
		}
		return textField(1)(b, v)
	}
	xml := &message{extensions: 6, members: map[string]memberEncoder{
		"name": textField(1), "namespace": textField(2), "prefix": textField(3), "attribute": boolField(4),
		"wrapped": boolField(5),
	}}
	m.members = map[string]memberEncoder{
		"$ref": textField(1), "format": textField(2), "title": textField(3), "description": textField(4),
		"default":    messageField(5, encodeAny),
		"multipleOf": doubleField(6), "maximum": doubleField(7), "exclusiveMaximum": boolField(8),
		"minimum":          doubleField(9),
		"exclusiveMinimum": boolField(10), "maxLength": integerField(11), "minLength": integerField(12),
		"pattern":  textField(13),
		"maxItems": integerField(14), "minItems": integerField(15), "uniqueItems": boolField(16),
		"maxProperties": integerField(17),
		"minProperties": integerField(18), "required": repeatedField(19, textField),
		"enum":                 repeatedMessage(20, encodeAny),
		"additionalProperties": messageField(21, additional), "type": messageField(22, kind),
		"items": messageField(23, items),
		"allOf": repeatedMessage(24, m.encode), "properties": messageField(25, mapEncoder(m.encode)),
		"discriminator": textField(26),
		"readOnly":      boolField(27), "xml": messageField(28, xml.encode),
		"externalDocs": messageField(29, externalDocs().encode),
		"example":      messageField(30, encodeAny),
	}
	return m.encode
}

// encodeSecurity encodes one security scheme, which is one of six messages.
func encodeSecurity(b []byte, v any) []byte {
	o, _ := v.(map[string]any)
	scopes := textMapEncoder()
	switch kind, flow := o["type"], o["flow"]; {
	case kind == "basic":
		m := &message{extensions: 3,
			members: map[string]memberEncoder{"type": textField(1), "description": textField(2)}}
		return messageField(1, m.encode)(b, v)
	case kind == "apiKey":
		m := &message{extensions: 5, members: map[string]memberEncoder{
			"type": textField(1), "name": textField(2), "in": textField(3), "description": textField(4),
		}}
		return messageField(2, m.encode)(b, v)
	case kind != "oauth2":
		return b
	case flow == "implicit":
		m := &message{extensions: 6, members: map[string]memberEncoder{
			"type": textField(
				1,
			), "flow": textField(2), "scopes": messageField(3, scopes), "authorizationUrl": textField(4),
			"description": textField(5),
		}}
		return messageField(3, m.encode)(b, v)
	case flow == "password", flow == "application":
		m := &message{extensions: 6, members: map[string]memberEncoder{
			"type": textField(1), "flow": textField(2), "scopes": messageField(3, scopes), "tokenUrl": textField(4),
			"description": textField(5),
		}}
		if flow == "password" {
			return messageField(4, m.encode)(b, v)
		}
		return messageField(5, m.encode)(b, v)
	case flow == "accessCode":
		m := &message{extensions: 7, members: map[string]memberEncoder{
			"type": textField(1), "flow": textField(2), "scopes": messageField(3, scopes),
			"authorizationUrl": textField(4),
			"tokenUrl":         textField(5), "description": textField(6),
		}}
		return messageField(6, m.encode)(b, v)
	}
	return b
}

// textMapEncoder returns the encoder of an object with arbitrary keys and string values.
func textMapEncoder() encoder {
	each := messageField(1, func(b []byte, v any) []byte {
		e, _ := v.(mapEntry)
		return textField(2)(textField(1)(b, e.name), e.value)
	})
	return (&message{otherMembers: each}).encode
}
