"""The bus on Google Cloud Pub/Sub: one topic, its publisher and its subscribers, over the library's generated clients.

Those, and not the library's own batching and streaming: measured (google-cloud-pubsub 2.44), a raw request of a batch takes
19-31,000 messages a second where its publisher takes 6-13,000, and a pull of 1,000 with its acknowledgement 10-16,000 where
its stream gives 1,900; and there is no queue here that we do not bound. Ordering keys and exactly-once delivery are not used.
"""

import os
import re
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import google.auth.exceptions
import grpc
import msgspec
from google.api_core import exceptions as api_errors
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from jobevents import errors
from jobevents.backends.pubsubpublisher import PubSubPublisher
from jobevents.backends.pubsubsubscriber import PubSubSubscriber, Terms
from jobevents.telemetry import Counts

T = TypeVar("T")

_is_topic = re.compile(r"projects/[^/\s]+/topics/[^/\s]+").fullmatch
_is_subscription = re.compile(r"projects/[^/\s]+/subscriptions/[^/\s]+").fullmatch
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # a pull of 1,000 messages
    ("grpc.keepalive_time_ms", 30_000),  # a connection that is dead without a word is found out
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5_000),  # the default of two minutes is an outage prolonged
]
_DENIED = (api_errors.Forbidden, api_errors.Unauthorized, google.auth.exceptions.RefreshError)
_WRONG = (api_errors.InvalidArgument, api_errors.FailedPrecondition, google.auth.exceptions.DefaultCredentialsError)


class PubSubBus:
    """One topic. Safe for threads and over forks: every process makes its own connections when it needs them.

    Uses application default credentials, or PUBSUB_EMULATOR_HOST without any.
    """

    def __init__(self, topic: str, *, counts: Counts | None = None, terms: Terms | None = None) -> None:
        """Connect to nothing yet.

        Args:
            topic: `projects/{project}/topics/{topic}`.
            terms: how subscribers hold what they pull, and how a subscription is made.

        Raises:
            Misconfigured: that is not a topic's name.
        """
        if not _is_topic(topic):
            raise errors.Misconfigured(f"no topic topic={topic!r}; write projects/PROJECT/topics/TOPIC")
        self.topic = topic
        self._counts = counts or Counts()
        self._terms = terms or Terms()
        self._made: weakref.WeakSet[PubSubPublisher | PubSubSubscriber] = weakref.WeakSet()

    def publisher(self) -> PubSubPublisher:
        """Return a publisher to the topic."""
        made = PubSubPublisher(self.topic, open_publisher, call, counts=self._counts)
        self._made.add(made)
        return made

    def subscriber(self, subscription: str, *, create: bool = False, dead_letter: str = "") -> PubSubSubscriber:
        """Return a subscriber.

        Args:
            subscription: `projects/{project}/subscriptions/{name}`, or a name alone, in the topic's project.
            create: make topic and subscription where they are not there.
            dead_letter: topic for what was delivered a hundred times, `projects/{project}/topics/{topic}`; made with the
                subscription, and with a subscription of its own.

        Raises:
            Misconfigured: that is not a subscription's name, or not a topic's.
        """
        if dead_letter and not _is_topic(dead_letter):
            raise errors.Misconfigured(f"no topic topic={dead_letter!r}; write projects/PROJECT/topics/TOPIC")
        terms = msgspec.structs.replace(self._terms, dead_letter=dead_letter or self._terms.dead_letter)
        name = (
            subscription
            if "/" in subscription
            else f"{self.topic.rpartition('/topics/')[0]}/subscriptions/{subscription}"
        )
        if not subscription or not _is_subscription(name):
            raise errors.Misconfigured(
                f"no subscription subscription={subscription!r}; write projects/PROJECT/subscriptions/NAME"
            )
        made = PubSubSubscriber(
            name, self.topic, open_subscriber, call, ensure_topic, create=create, terms=terms, counts=self._counts
        )
        self._made.add(made)
        return made

    def create_topic(self) -> bool:
        """Make the topic; False when it is there.

        Raises:
            Unavailable, PermissionDenied: what Pub/Sub says.
        """
        return ensure_topic(self.topic)

    def check(self) -> str:
        """Return that the topic is there; one request.

        Raises:
            NotFound: it is not.
            Unavailable, PermissionDenied: what Pub/Sub says; it takes the permission `pubsub.topics.get`.
        """
        client = open_publisher()
        try:
            call(f"look at {self.topic}", lambda: client.get_topic(topic=self.topic, retry=None, timeout=10.0))
        finally:
            client.transport.close()
        return f"{self.topic} is there"

    def close(self) -> None:
        """Close the publishers and subscribers made here."""
        for one in list(self._made):
            one.close()


def open_publisher() -> PublisherClient:
    """Return a client of this process alone."""
    return call("open the publisher", lambda: PublisherClient(transport=_transport(PublisherGrpcTransport)))


def open_subscriber() -> SubscriberClient:
    """Return a client of this process alone."""
    return call("open the subscriber", lambda: SubscriberClient(transport=_transport(SubscriberGrpcTransport)))


def _transport(kind: Any) -> Any:  # the two transports have no common type
    host = os.environ.get("PUBSUB_EMULATOR_HOST")
    if host:
        return kind(channel=grpc.insecure_channel(host, options=_OPTIONS))

    def channel(*args: Any, **kwargs: Any) -> grpc.Channel:
        return kind.create_channel(*args, **{**kwargs, "options": _OPTIONS})

    return kind(channel=channel)


def ensure_topic(topic: str) -> bool:
    """Make a topic; False when it is there.

    Raises:
        Unavailable, PermissionDenied: what Pub/Sub says.
    """
    client = open_publisher()
    try:
        call(f"make {topic}", lambda: client.create_topic(name=topic, retry=None, timeout=10.0))
    except errors.Conflict:
        return False
    finally:
        client.transport.close()
    return True


def call(what: str, work: Callable[[], T]) -> T:
    """Make a call of the library, with our errors for its.

    Raises:
        NotFound: there is no such topic or subscription.
        Conflict: it exists already.
        PermissionDenied, Misconfigured: a person has to mend it.
        InvalidValue: the request can never succeed.
        Unavailable: anything else; try again.
    """
    try:
        return work()
    except api_errors.NotFound as error:
        raise errors.NotFound(f"cannot {what}: {error.message}") from error
    except api_errors.AlreadyExists as error:
        raise errors.Conflict(f"cannot {what}: {error.message}") from error
    except _DENIED as error:
        raise errors.PermissionDenied(f"cannot {what}: {error}") from error
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise errors.Misconfigured(
            f"no credentials for Pub/Sub: {error}; set GOOGLE_APPLICATION_CREDENTIALS, or PUBSUB_EMULATOR_HOST"
        ) from error
    except _WRONG as error:
        raise errors.InvalidValue(f"cannot {what}: {error}") from error
    except (api_errors.GoogleAPICallError, api_errors.RetryError, google.auth.exceptions.GoogleAuthError) as error:
        raise errors.Unavailable(f"cannot {what}: {error}") from error
    except (grpc.RpcError, ValueError) as error:  # the channel was closed under the call
        raise errors.Unavailable(f"cannot {what}: {error}") from error
