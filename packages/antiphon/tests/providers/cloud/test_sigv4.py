"""Signatures of AWS: the published examples, and botocore's own signer over many requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from antiphon.http.client.connection import parse_url
from antiphon.providers.cloud.sigv4 import AwsKeys, sign

KEYS = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
MOMENT = datetime(2015, 8, 30, 12, 36, tzinfo=UTC).timestamp()
FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("method", "target", "headers", "body", "signature"),
    [
        ("GET", "/", {}, b"", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", {}, b"", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET",
            "/?Param2=value2&Param1=value1",
            {},
            b"",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            "POST",
            "/",
            {"content-type": FORM},
            b"Param1=value1",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ],
)
def test_published_examples(method: str, target: str, headers: dict[str, str], body: bytes, signature: str) -> None:
    added = sign(
        KEYS,
        method=method,
        host="example.amazonaws.com",
        target=target,
        headers=headers,
        body=[body],
        region="us-east-1",
        service="service",
        timestamp=MOMENT,
    )
    assert added["x-amz-date"] == "20150830T123600Z"
    assert added["authorization"].endswith(f"Signature={signature}")


def test_the_example_of_the_documentation() -> None:
    added = sign(
        KEYS,
        method="GET",
        host="iam.amazonaws.com",
        target="/?Action=ListUsers&Version=2010-05-08",
        headers={"content-type": f"{FORM}; charset=utf-8"},
        body=(),
        region="us-east-1",
        service="iam",
        timestamp=MOMENT,
    )
    assert added["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )


def botocore_headers(url: str, headers: dict[str, str], body: bytes, token: str) -> dict[str, Any]:
    request = AWSRequest("POST", url, headers=headers, data=body)
    request.context["timestamp"] = "20150830T123600Z"
    auth = SigV4Auth(Credentials(KEYS.access_key, KEYS.secret_key, token or None), "bedrock", "eu-west-3")
    request.headers["X-Amz-Date"] = "20150830T123600Z"
    if token:
        request.headers["X-Amz-Security-Token"] = token
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    auth._inject_signature_to_request(request, signature)
    return dict(request.headers)


MODELS = st.text(st.sampled_from("abz019-._:/@%+~ é"), min_size=1, max_size=30).filter(
    lambda name: name not in (".", "..")  # no model is called like that, and botocore resolves them as paths
)


@given(model=MODELS, query=MODELS, body=st.binary(max_size=200), token=st.sampled_from(["", "a/b+c=="]))
def test_botocore_signs_the_same(model: str, query: str, body: bytes, token: str) -> None:
    from urllib.parse import quote

    url = f"https://bedrock-runtime.eu-west-3.amazonaws.com/model/{quote(model, safe=':')}/invoke?a={quote(query, safe='')}&b"
    origin, target = parse_url(url)
    expected = botocore_headers(url, {"content-type": "application/json"}, body, token)
    added = sign(
        AwsKeys(KEYS.access_key, KEYS.secret_key, token),
        method="POST",
        host=origin.authority,
        target=target,
        headers={"content-type": "application/json", "accept": "*/*"},
        body=[body[:3], body[3:]],
        region="eu-west-3",
        service="bedrock",
        timestamp=MOMENT,
    )
    assert added["authorization"] == expected["Authorization"]


def test_keys_are_not_shown() -> None:
    assert KEYS.secret_key not in repr(KEYS)
